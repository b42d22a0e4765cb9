#include "library_facts.hpp"

#include <dptk/comm/registry.hpp>
#include <dptk/core/version.hpp>

#ifdef DPTK_WITH_MPI
#include <dptk/comm/mpi/environment.hpp>
#if defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#if defined(MPIX_CUDA_AWARE_SUPPORT) || (defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40000000)
#define DPTK_INFO_KNOWS_CUDA_AWARENESS
#endif
#endif

#ifdef DPTK_WITH_ONEDNN
#include <oneapi/dnnl/dnnl.hpp>
#endif

#include <dptk/core/detail/text.hpp>

#include "parse.hpp"
#include "shared_library.hpp"

namespace info {

namespace {

void find_mpi([[maybe_unused]] LibraryFacts& facts) {
#ifdef DPTK_WITH_MPI
    facts.mpi = dptk::MpiEnvironment::library();
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (initialized == 0 || dptk::MpiEnvironment::is_finalized()) return;
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    facts.mpi_thread_level = level == MPI_THREAD_MULTIPLE     ? "multiple"
                             : level == MPI_THREAD_SERIALIZED ? "serialized"
                             : level == MPI_THREAD_FUNNELED   ? "funneled"
                                                              : "single";
#ifdef DPTK_INFO_KNOWS_CUDA_AWARENESS
    facts.mpi_cuda_aware = MPIX_Query_cuda_support() != 0;
#endif
#endif
}

void find_onednn([[maybe_unused]] LibraryFacts& facts) {
#ifdef DPTK_WITH_ONEDNN
    const dnnl::version_t* version = dnnl::version();
    facts.onednn = dptk::detail::text(version->major, ".", version->minor, ".", version->patch);
#endif
}

/// Calls a function with the signature `int f(int* version)`, which returns 0 on success.
[[nodiscard]] std::optional<int> ask_version(const SharedLibrary& library, const char* name) {
    const auto function = library.function<int(int*)>(name);
    int version = 0;
    if (function == nullptr || function(&version) != 0 || version <= 0) return std::nullopt;
    return version;
}

void find_cuda(LibraryFacts& facts) {
    if (const auto version = ask_version(SharedLibrary{"libcuda.so.1"}, "cuDriverGetVersion"))
        facts.cuda_driver = cuda_version_text(*version);
    const SharedLibrary runtime{"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"};
    if (const auto version = ask_version(runtime, "cudaRuntimeGetVersion"))
        facts.cuda_runtime = cuda_version_text(*version);
    const SharedLibrary cudnn{"libcudnn.so.9", "libcudnn.so.8"};
    if (const auto version = cudnn.function<std::size_t()>("cudnnGetVersion"))
        facts.cudnn = cudnn_version_text(version());
    if (const auto version = ask_version(SharedLibrary{"libnccl.so.2"}, "ncclGetVersion"))
        facts.nccl = nccl_version_text(*version);
}

}  // namespace

LibraryFacts find_library_facts() {
    LibraryFacts facts;
    facts.dptk = DPTK_VERSION;
    for (const dptk::TransportEntry& entry : dptk::registered_transports()) {
        facts.transports.emplace_back(entry.name);
    }
#ifdef DPTK_WITH_GLOO
    facts.gloo = true;
#endif
    find_mpi(facts);
    find_onednn(facts);
    find_cuda(facts);
    return facts;
}

}  // namespace info
