#include <doctest/doctest.h>
#include <dptk/control/process/temporary_directory.hpp>

#include <cstdio>
#include <initializer_list>

#include "dptk-run/devices.hpp"

TEST_CASE("GPUs are the numbered devices that CUDA_VISIBLE_DEVICES shows") {
    const dptk::detail::TemporaryDirectory devices("dptk-test");
    for (const char* const name :
         {"nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia", "null"}) {
        std::fclose(std::fopen((devices.path() + "/" + name).c_str(), "w"));
    }
    const char* const folder = devices.path().c_str();
    CHECK(run::count_gpus(folder, nullptr) == 3);
    CHECK(run::count_gpus(folder, "0,2") == 2);
    CHECK(run::count_gpus(folder, "1") == 1);
    CHECK(run::count_gpus(folder, "") == 0);
    CHECK(run::count_gpus(folder, "-1") == 0);
    CHECK(run::count_gpus(folder, "0,3,1") == 1);
    CHECK(run::count_gpus(folder, "GPU-8f1c,MIG-22") == 2);
    CHECK(run::count_gpus("/no/such/folder", nullptr) == 0);
}

TEST_CASE("count_cores returns at least 1") {
    CHECK(run::count_cores() >= 1);
}
