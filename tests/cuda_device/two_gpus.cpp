// Sets up two GPUs of the CUDA test double for the tests on a GPU.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "cuda_double/double.hpp"

namespace {

/// Lives as long as the program. Its destructor checks for forbidden calls and leaks.
struct TwoGpus {
    TwoGpus() { cuda_double::reset(2); }
    ~TwoGpus() {
        cuda_double::finish();
        bool is_clean = true;
        for (const auto& lines : {cuda_double::problems(), cuda_double::leftovers()}) {
            for (const std::string& line : lines) {
                std::fprintf(stderr, "forbidden or leaked: %s\n", line.c_str());
                is_clean = false;
            }
        }
        if (!is_clean) std::_Exit(EXIT_FAILURE);
    }
    TwoGpus(const TwoGpus&) = delete;
    TwoGpus& operator=(const TwoGpus&) = delete;
};

/// Initialized before the test cases of other files are registered, because some of these query how many
/// GPUs exist.
[[gnu::init_priority(1000)]] const TwoGpus two_gpus;

}  // namespace
