#include "remarks.hpp"

#include <dptk/core/detail/text.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "format.hpp"
#include "hosts.hpp"
#include "parse.hpp"
#include "statistics.hpp"

namespace info {

namespace {

using dptk::detail::text;
using Remarks = std::vector<std::string>;

constexpr std::uint64_t shm_per_rank = std::uint64_t{64} << 20;

/// "rank 3", "ranks 0-1".
[[nodiscard]] std::string ranks_text(const std::vector<int>& ranks) {
    return (ranks.size() == 1 ? "rank " : "ranks ") + list_text(ranks);
}

[[nodiscard]] std::string ranks_text(const Host& host) {
    std::vector<int> ranks;
    for (const RankFacts* rank : host.ranks) ranks.push_back(rank->rank);
    return ranks_text(ranks);
}

[[nodiscard]] const Gpu* device_of(const RankFacts& rank) {
    return rank.device ? &rank.gpu.gpus.at(static_cast<std::size_t>(*rank.device)) : nullptr;
}

/// A string that identifies the GPU, the same on all ranks that see this GPU.
[[nodiscard]] std::string identity_of(const Gpu& gpu, const HostFacts& host) {
    return gpu.uuid.empty() ? text(host.name, " ", host.boot_id, " ", gpu.bus_id) : gpu.uuid;
}

void remark_shared_gpus(const JobFacts& job, Remarks& remarks) {
    std::map<std::string, std::vector<int>> users;
    std::map<std::string, std::set<std::string>> gpus_of_host;
    for (const RankFacts& rank : job.ranks) {
        for (const Gpu& gpu : rank.gpu.gpus) gpus_of_host[rank.host.name].insert(identity_of(gpu, rank.host));
        if (const Gpu* gpu = device_of(rank)) users[identity_of(*gpu, rank.host)].push_back(rank.rank);
    }
    for (const auto& [identity, ranks] : users) {
        if (ranks.size() < 2) continue;
        const RankFacts& first = job.ranks.at(static_cast<std::size_t>(ranks.front()));
        const Gpu& gpu = *device_of(first);
        remarks.push_back(text("On ", first.host.name, ", ", ranks_text(ranks), " use the same GPU (",
                               gpu.name, ", ", gpu.bus_id,
                               "): start at most as many ranks on this host as it has GPUs (",
                               gpus_of_host[first.host.name].size(),
                               " seen), or give each rank its own GPU with CUDA_VISIBLE_DEVICES."));
    }
}

void remark_unusable_gpus(const Host& host, Remarks& remarks) {
    std::map<std::string, std::vector<int>> ranks;
    for (const RankFacts* rank : host.ranks) {
        if (!rank->gpu.problem.empty()) ranks[rank->gpu.problem].push_back(rank->rank);
    }
    for (const auto& [problem, concerned] : ranks) {
        remarks.push_back(
            text("On ", host.facts().name, ", the CUDA driver is installed, but ", ranks_text(concerned),
                 " can use no GPU (", problem,
                 "): run nvidia-smi there, and check whether CUDA_VISIBLE_DEVICES hides the GPUs."));
    }
}

void remark_old_driver(const Host& host, Remarks& remarks) {
    const LibraryFacts& libraries = host.ranks.front()->libraries;
    if (!libraries.cuda_driver || !libraries.cuda_runtime) return;
    const auto major = [](const std::string& version) { return std::atoi(version.c_str()); };
    if (major(*libraries.cuda_driver) >= major(*libraries.cuda_runtime)) return;
    remarks.push_back(text("On ", host.facts().name, ", the driver supports CUDA ", *libraries.cuda_driver,
                           ", but the CUDA runtime is ", *libraries.cuda_runtime,
                           ": install a newer driver, or a CUDA runtime that this driver supports."));
}

void remark_cores(const Host& host, Remarks& remarks) {
    const auto ranks = static_cast<double>(host.ranks.size());
    if (host.cores <= 0 || host.cores >= ranks) return;
    remarks.push_back(text("On ", host.facts().name, ", ", host.ranks.size(), " ranks (", ranks_text(host),
                           ") share ", number_text(host.cores), " core(s): start at most ",
                           std::max(1, static_cast<int>(host.cores)),
                           " rank(s) there, or allow the ranks more cores."));
}

void remark_threads(const Host& host, Remarks& remarks) {
    const auto ranks = static_cast<double>(host.ranks.size());
    if (ranks < 2 || host.cores < ranks) return;
    int threads = 0;
    bool all_set = true;
    for (const RankFacts* rank : host.ranks) {
        const std::optional<int> setting = parse_omp_num_threads(rank->omp_num_threads);
        threads += setting.value_or(static_cast<int>(rank->host.cores.size()));
        all_set = all_set && setting;
    }
    if (threads <= host.cores) return;
    remarks.push_back(text("On ", host.facts().name, ", OpenMP starts ", threads, " threads in ",
                           host.ranks.size(), " ranks on ", number_text(host.cores), " cores",
                           all_set ? "" : " by default, because OMP_NUM_THREADS is not set on some ranks",
                           ": set OMP_NUM_THREADS=", static_cast<int>(host.cores / ranks),
                           " for all ranks."));
}

void remark_shared_memory(const Host& host, Remarks& remarks) {
    const HostFacts& facts = host.facts();
    const std::uint64_t needed = shm_per_rank * host.ranks.size();
    if (!facts.shm_size || *facts.shm_size >= needed) return;
    remarks.push_back(text("On ", facts.name, ", /dev/shm has ", bytes_text(*facts.shm_size), " for ",
                           host.ranks.size(), " rank(s), which may need ", bytes_text(needed),
                           ": enlarge it (mount -o remount,size=1g /dev/shm, or docker run --shm-size=1g)."));
}

void remark_thread_level(const JobFacts& job, Remarks& remarks) {
    std::map<std::string, std::vector<int>> ranks;
    for (const RankFacts& rank : job.ranks) {
        const auto& level = rank.libraries.mpi_thread_level;
        if (level && *level != "multiple") ranks[*level].push_back(rank.rank);
    }
    for (const auto& [level, concerned] : ranks) {
        remarks.push_back(
            text("MPI provides the thread level \"", level, "\" on ", ranks_text(concerned),
                 ", but dptk needs \"multiple\" to communicate while the program computes: use an MPI "
                 "that is built with MPI_THREAD_MULTIPLE."));
    }
}

void remark_versions(const JobFacts& job, Remarks& remarks) {
    using Version = std::function<std::optional<std::string>(const LibraryFacts&)>;
    const std::pair<const char*, Version> libraries[] = {
        {"dptk", [](const LibraryFacts& facts) { return facts.dptk; }},
        {"MPI", [](const LibraryFacts& facts) { return facts.mpi; }},
        {"oneDNN", [](const LibraryFacts& facts) { return facts.onednn; }},
        {"the CUDA driver", [](const LibraryFacts& facts) { return facts.cuda_driver; }},
        {"the CUDA runtime", [](const LibraryFacts& facts) { return facts.cuda_runtime; }},
        {"cuDNN", [](const LibraryFacts& facts) { return facts.cudnn; }},
        {"NCCL", [](const LibraryFacts& facts) { return facts.nccl; }}};
    for (const auto& [name, version] : libraries) {
        std::map<std::string, std::vector<int>> ranks;
        for (const RankFacts& rank : job.ranks) {
            ranks[version(rank.libraries).value_or("none")].push_back(rank.rank);
        }
        if (ranks.size() < 2) continue;
        std::string found;
        for (const auto& [value, concerned] : ranks) {
            found += text(found.empty() ? "" : ", ", value, " on ", ranks_text(concerned));
        }
        remarks.push_back(text("The ranks have different versions of ", name, " (", found,
                               "): install the same version on all hosts."));
    }
}

void remark_slow_ranks(const JobFacts& job, Remarks& remarks) {
    const auto host_of = [&](int rank) { return job.ranks.at(static_cast<std::size_t>(rank)).host.name; };
    if (job.compute && job.compute->slowest.ratio > slow_ratio) {
        const Slowest& slowest = job.compute->slowest;
        remarks.push_back(text("Rank ", slowest.rank, " on ", host_of(slowest.rank), " computes ",
                               ratio_text(slowest.ratio),
                               " times as long as the median rank, and all ranks wait for it: look for other "
                               "programs on its cores, or a slower or throttled processor."));
    }
    if (!job.all_reduce.empty() && job.all_reduce.back().slowest.ratio > slow_ratio) {
        const AllReduceResult& last = job.all_reduce.back();
        remarks.push_back(text("Rank ", last.slowest.rank, " on ", host_of(last.slowest.rank), " needs ",
                               ratio_text(last.slowest.ratio), " times the median rank's time to all-reduce ",
                               bytes_text(last.bytes),
                               ": look for other programs on its cores, or a slower network link."));
    }
}

}  // namespace

std::vector<std::string> find_remarks(const JobFacts& job) {
    Remarks remarks;
    if (!job.launch_problem.empty()) {
        remarks.push_back(
            text("This process has not joined its job and reports only itself: ", job.launch_problem, "."));
    }
    remark_shared_gpus(job, remarks);
    for (const Host& host : hosts_of(job)) {
        remark_unusable_gpus(host, remarks);
        remark_old_driver(host, remarks);
        remark_cores(host, remarks);
        remark_threads(host, remarks);
        remark_shared_memory(host, remarks);
    }
    remark_thread_level(job, remarks);
    remark_versions(job, remarks);
    remark_slow_ranks(job, remarks);
    return remarks;
}

}  // namespace info
