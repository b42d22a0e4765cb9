// Makes the transports between processes available to a test, whose own files need not include them.
#ifdef DPTK_WITH_MPI
#include <dptk/comm/mpi.hpp>

#include <cstdlib>

namespace {

/// With DPTK_TEST_MPI=funneled the program itself initialises MPI, for its main thread alone.
class FunneledMpi {
  public:
    FunneledMpi() {
        const char* wish = std::getenv("DPTK_TEST_MPI");
        if (wish == nullptr || std::string_view(wish) != "funneled") return;
        int level = 0;
        MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
        initialised_ = true;
    }
    ~FunneledMpi() {
        if (initialised_) MPI_Finalize();
    }
    FunneledMpi(const FunneledMpi&) = delete;
    FunneledMpi& operator=(const FunneledMpi&) = delete;

  private:
    bool initialised_ = false;
};

const FunneledMpi funneled_mpi;

}  // namespace
#endif
#ifdef DPTK_WITH_GLOO
#include <dptk/comm/gloo.hpp>
#endif
