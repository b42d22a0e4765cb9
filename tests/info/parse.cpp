#include "../../tools/dptk-info/parse.hpp"

#include <doctest/doctest.h>

#include "../../tools/dptk-info/format.hpp"
#include "../../tools/dptk-info/statistics.hpp"

using namespace info;

TEST_CASE("the system's name in os-release is returned without its quotes") {
    CHECK(
        parse_os_release("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_ID=\"12\"\n") ==
        "Debian GNU/Linux 12 (bookworm)");
    CHECK(parse_os_release("PRETTY_NAME='Alpine Linux v3.19'") == "Alpine Linux v3.19");
    CHECK(parse_os_release("PRETTY_NAME=Arch\n") == "Arch");
    CHECK(parse_os_release("PRETTY_NAME=\"A \\\"quoted\\\" \\$ystem\"\n") == "A \"quoted\" $ystem");
}

TEST_CASE("the system's name is Linux if os-release has no name") {
    CHECK(parse_os_release("") == "Linux");
    CHECK(parse_os_release("# PRETTY_NAME is missing\nID=x\n") == "Linux");
    CHECK(parse_os_release("PRETTY_NAME=\n") == "Linux");
    CHECK(parse_os_release("PRETTY_NAME=\"") == "\"");
}

TEST_CASE("meminfo's kB are bytes times 1024") {
    constexpr std::string_view text =
        "MemTotal:       24684096 kB\nMemFree:        23962336 kB\nMemAvailable:   24245828 kB\n"
        "HugePages_Total:       3\n";
    CHECK(parse_meminfo(text, "MemTotal") == 24684096ULL * 1024);
    CHECK(parse_meminfo(text, "MemAvailable") == 24245828ULL * 1024);
    CHECK(!parse_meminfo(text, "HugePages_Total"));
    CHECK(!parse_meminfo(text, "Mem"));
    CHECK(!parse_meminfo("MemTotal: many kB\n", "MemTotal"));
    CHECK(!parse_meminfo("", "MemTotal"));
}

TEST_CASE("the processor's name is read from cpuinfo, if it has one") {
    CHECK(
        parse_cpu_model("processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 1\nmodel name\t: AMD EPYC\n\n"
                        "processor\t: 1\nmodel name\t: another\n") == "AMD EPYC");
    CHECK(parse_cpu_model("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n") ==
          "POWER9, altivec supported");
    CHECK(parse_cpu_model("processor\t: 0\nCPU implementer\t: 0x41\n").empty());
}

TEST_CASE("the control groups of both versions are read") {
    using Paths = std::vector<std::pair<std::string, std::string>>;
    CHECK(parse_cgroup_paths("0::/user.slice/job 7\n") == Paths{{"", "/user.slice/job 7"}});
    CHECK(parse_cgroup_paths("4:memory:/a:b\n3:cpu,cpuacct:/c\n0::/\n") ==
          Paths{{"memory", "/a:b"}, {"cpu", "/c"}, {"cpuacct", "/c"}, {"", "/"}});
    CHECK(parse_cgroup_paths("").empty());
    CHECK(parse_cgroup_paths("nonsense\n1:cpu:relative\n").empty());
}

TEST_CASE("cpu.max is a number of cores, or no limit") {
    CHECK(parse_cpu_max("200000 100000\n") == 2.0);
    CHECK(parse_cpu_max("150000 100000") == 1.5);
    CHECK(!parse_cpu_max("max 100000\n"));
    CHECK(!parse_cpu_max("-1 100000\n"));
    CHECK(!parse_cpu_max("100000 0"));
    CHECK(!parse_cpu_max(" "));
    CHECK(!parse_cpu_max(""));
}

TEST_CASE("memory.max is a number of bytes, or no limit") {
    CHECK(parse_memory_max("8589934592\n") == 8589934592ULL);
    CHECK(!parse_memory_max("max\n"));
    CHECK(!parse_memory_max(""));
}

TEST_CASE("OMP_NUM_THREADS is read as OpenMP does") {
    CHECK(parse_omp_num_threads("4") == 4);
    CHECK(parse_omp_num_threads(" 4 ,2") == 4);
    CHECK(!parse_omp_num_threads("0"));
    CHECK(!parse_omp_num_threads("four"));
    CHECK(!parse_omp_num_threads(""));
}

TEST_CASE("version numbers of CUDA, cuDNN and NCCL are formatted by each library's own rule") {
    CHECK(cuda_version_text(13000) == "13.0");
    CHECK(cuda_version_text(11080) == "11.8");
    CHECK(cudnn_version_text(91900) == "9.19.0");
    CHECK(cudnn_version_text(8902) == "8.9.2");
    CHECK(nccl_version_text(22809) == "2.28.9");
    CHECK(nccl_version_text(2804) == "2.8.4");
}

TEST_CASE("numbers are formatted with units and few digits") {
    CHECK(bytes_text(4) == "4 B");
    CHECK(bytes_text(64 << 20) == "64 MiB");
    CHECK(bytes_text(1536) == "1.5 KiB");
    CHECK(bytes_text(24684096ULL * 1024) == "23.5 GiB");
    CHECK(seconds_text(1.1e-6) == "1.10 us");
    CHECK(seconds_text(0.033) == "33.0 ms");
    CHECK(seconds_text(2) == "2.00 s");
    CHECK(rate_text(1.21e9) == "1.21 GB/s");
    CHECK(rate_text(10.5e6) == "10.5 MB/s");
    CHECK(rate_text(998) == "1.00 kB/s");
    CHECK(number_text(2) == "2");
    CHECK(number_text(1.5) == "1.5");
    CHECK(number_text(10) == "10");
    CHECK(list_text({0, 1, 2, 3, 8}) == "0-3,8");
    CHECK(list_text({5}) == "5");
    CHECK(list_text({}) == "none");
}

TEST_CASE("the slowest rank is reported with the ratio of its time to the median") {
    CHECK(median({3, 1, 2}) == 2);
    CHECK(median({}) == 0);
    const Slowest slowest = slowest_of({1, 1, 4, 2});
    CHECK(slowest.rank == 2);
    CHECK(slowest.ratio == 4);
}

TEST_CASE("one of two ranks can be slow") {
    CHECK(slowest_of({1, 2}).rank == 1);
    CHECK(slowest_of({1, 2}).ratio == 2);
}
