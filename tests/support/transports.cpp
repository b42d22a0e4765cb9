// Registers the transports between processes, so that a test's own files need not include them.
#ifdef DPTK_WITH_MPI
#include <dptk/comm/mpi.hpp>

#include <unistd.h>

#include <cstdlib>

namespace {

/// Initializes MPI with the thread level FUNNELED, before dptk does, if DPTK_TEST_MPI=funneled.
class FunneledMpi {
  public:
    FunneledMpi() {
        const char* setting = std::getenv("DPTK_TEST_MPI");
        if (setting == nullptr || std::string_view(setting) != "funneled") return;
        int level = 0;
        MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
        process_ = getpid();
    }
    ~FunneledMpi() {
        if (process_ == getpid()) MPI_Finalize();  // not in a forked child
    }
    FunneledMpi(const FunneledMpi&) = delete;
    FunneledMpi& operator=(const FunneledMpi&) = delete;

  private:
    pid_t process_ = 0;  // 0: MPI was not initialized here
};

const FunneledMpi funneled_mpi;

}  // namespace
#endif
#ifdef DPTK_WITH_GLOO
#include <dptk/comm/gloo.hpp>
#endif
#include <dptk/comm/tcp.hpp>
