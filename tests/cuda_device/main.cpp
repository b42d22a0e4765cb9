// Entry point of the tests on a real GPU. Without a GPU, they report that they are skipped.
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
