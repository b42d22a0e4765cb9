// The data that dptk-info collects, as plain values: filled in by the *_facts files, exchanged between ranks,
// and read by remarks and reports. An empty optional means that the value was not found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace info {

struct HostFacts {
    std::string name;
    std::string boot_id;  // distinguishes hosts of the same name
    std::string system;   // "Debian GNU/Linux 12 (bookworm)"
    std::string kernel;
    std::string cpu;
    std::vector<int> cores;  // the CPU affinity mask of this process
    int cores_online = 0;
    std::optional<double> cpu_limit;  // limit of the control group, in cores
    std::string cgroup;
    std::uint64_t memory_total = 0;  // in bytes, like all sizes in this file
    std::uint64_t memory_available = 0;
    std::optional<std::uint64_t> memory_limit;  // limit of the control group
    std::optional<std::uint64_t> shm_size;      // size of /dev/shm
    std::optional<std::uint64_t> shm_free;
};

struct LibraryFacts {
    std::string dptk;
    std::vector<std::string> transports;  // those that init_process_group can choose from
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
    std::vector<Gpu> gpus;  // those visible to this process
    std::string problem;    // if the driver is installed and `gpus` is empty: the reason
};

struct RankFacts {
    int rank = 0;
    int local_rank = 0;
    HostFacts host;
    LibraryFacts libraries;
    GpuFacts gpu;
    std::optional<int> device;  // index of the GPU that this rank uses; empty: it computes on the CPU
    std::string omp_num_threads;
};

/// The slowest rank, and the ratio of its time to the median.
struct Slowest {
    int rank = 0;
    double ratio = 1;
};

struct ComputeResult {
    std::string work;                  // description of the computation
    std::vector<double> seconds = {};  // median time of a pass, by rank
    std::vector<int> threads = {};     // by rank
    Slowest slowest;
};

/// Messages between rank 0 and another rank.
struct MessageResult {
    int peer = 0;
    double latency = 0;           // in seconds: half the round trip of 8 bytes
    double bytes_per_second = 0;  // each message of 4 MiB follows the one before
};

struct AllReduceResult {
    std::size_t bytes = 0;
    std::size_t repetitions = 0;
    double seconds = 0;           // median over the ranks of each rank's median
    double bytes_per_second = 0;  // bus bandwidth: 2 (n - 1) / n * bytes / seconds
    Slowest slowest;
};

struct JobFacts {
    std::string launcher;
    std::string backend;
    std::string launch_problem;  // why this process could not join its job; empty: it has joined
    std::vector<RankFacts> ranks;
    std::optional<ComputeResult> compute;
    std::vector<MessageResult> messages;
    std::vector<AllReduceResult> all_reduce;
};

}  // namespace info
