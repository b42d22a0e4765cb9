// Tests on a real GPU: without one, they are skipped, and say so.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <dptk/core/cuda/device.hpp>

#include <cstdio>

int main(int argc, char** argv) {
    if (dptk::cuda::device_count() == 0) {
        std::puts("SKIPPED: no CUDA device");
        return 0;
    }
    return doctest::Context(argc, argv).run();
}
