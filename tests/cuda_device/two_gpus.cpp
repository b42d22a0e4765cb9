// The machine on which the tests run over the stand-ins.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "cuda_double/double.hpp"

namespace {

/// As long as the program; at its end nothing forbidden has been called, and nothing is left.
struct TwoGpus {
    TwoGpus() { cuda_double::reset(2); }
    ~TwoGpus() {
        cuda_double::finish();
        bool is_clean = true;
        for (const auto& lines : {cuda_double::problems(), cuda_double::leftovers()}) {
            for (const std::string& line : lines) {
                std::fprintf(stderr, "forbidden, or left behind: %s\n", line.c_str());
                is_clean = false;
            }
        }
        if (!is_clean) std::_Exit(EXIT_FAILURE);
    }
    TwoGpus(const TwoGpus&) = delete;
    TwoGpus& operator=(const TwoGpus&) = delete;
};

/// Before the test cases of other files are registered: some of them ask then how many GPUs there are.
[[gnu::init_priority(1000)]] const TwoGpus two_gpus;

}  // namespace
