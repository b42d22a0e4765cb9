// What dptk-info finds out, as plain values: filled by the *_facts files, sent to rank 0, and read by remarks
// and reports. A value that is not there has not been found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace info {

struct HostFacts {
    std::string name;
    std::string boot_id;  // tells hosts of one name apart
    std::string system;   // "Debian GNU/Linux 12 (bookworm)"
    std::string kernel;
    std::string cpu;
    std::vector<int> cores;  // those that this process may use
    int cores_online = 0;
    std::optional<double> cpu_limit;  // of the control group, in cores
    std::string cgroup;
    std::uint64_t memory_total = 0;  // bytes, as everything here
    std::uint64_t memory_available = 0;
    std::optional<std::uint64_t> memory_limit;  // of the control group
    std::optional<std::uint64_t> shm_size;      // of /dev/shm
    std::optional<std::uint64_t> shm_free;
};

struct LibraryFacts {
    std::string dptk;
    std::vector<std::string> transports;  // that init_process_group can choose from
    std::optional<std::string> mpi;       // "Open MPI v4.1.4"; empty: not compiled in
    std::optional<std::string> mpi_thread_level;
    std::optional<bool> mpi_cuda_aware;
    bool gloo = false;
    std::optional<std::string> onednn;
    std::optional<std::string> cuda_driver;  // the CUDA version that the driver supports
    std::optional<std::string> cuda_runtime;
    std::optional<std::string> cudnn;
    std::optional<std::string> nccl;
};

struct Gpu {
    std::string name;
    std::uint64_t memory = 0;
    std::string bus_id;
    std::string uuid;
};

struct GpuFacts {
    std::vector<Gpu> gpus;  // that this process sees
    std::string problem;    // why there are none, where the driver is installed
};

struct RankFacts {
    int rank = 0;
    int local_rank = 0;
    HostFacts host;
    LibraryFacts libraries;
    GpuFacts gpu;
    std::optional<int> device;  // index of the GPU that this rank takes; empty: it computes on the CPU
    std::string omp_num_threads;
};

/// The rank that took longest, and how many times the median that was.
struct Slowest {
    int rank = 0;
    double ratio = 1;
};

struct ComputeResult {
    std::string work;                  // what was computed
    std::vector<double> seconds = {};  // median of the passes, by rank
    std::vector<int> threads = {};     // by rank
    Slowest slowest;
};

struct AllReduceResult {
    std::size_t bytes = 0;
    std::size_t repetitions = 0;
    double seconds = 0;           // the median rank's median
    double bytes_per_second = 0;  // through each rank's link: 2 (n - 1) / n times the data in that time
    Slowest slowest;
};

struct JobFacts {
    std::string launcher;
    std::string backend;
    std::string launch_problem;  // why this process could not join its job; empty: it has
    std::vector<RankFacts> ranks;
    std::optional<ComputeResult> compute;
    std::vector<AllReduceResult> all_reduce;
};

}  // namespace info
