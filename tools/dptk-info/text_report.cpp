#include <dptk/control/process/signal_delay.hpp>
#include <dptk/core/detail/text.hpp>

#include <algorithm>
#include <cstdio>

#include "format.hpp"
#include "hosts.hpp"
#include "report.hpp"

namespace info {

namespace {

using dptk::detail::text;
using Row = std::vector<std::string>;

/// The number of hosts that are described. Further hosts appear only in the table of ranks and in --json.
constexpr std::size_t described_hosts = 4;

void print(const std::string& line) {
    std::puts(line.c_str());
}

void print_field(const char* name, const std::string& value) {
    std::printf("  %-12s%s\n", name, value.c_str());
}

/// Columns as wide as their widest cell; the first row is the heading.
void print_table(const std::vector<Row>& rows) {
    std::vector<std::size_t> widths;
    for (const Row& row : rows) {
        widths.resize(std::max(widths.size(), row.size()));
        for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    for (const Row& row : rows) {
        std::string line = " ";
        for (std::size_t i = 0; i < row.size(); ++i) {
            line += " " + row[i];
            if (i + 1 < row.size()) line.append(widths[i] - row[i].size() + 1, ' ');
        }
        print(line);
    }
}

[[nodiscard]] std::string or_not_found(const std::optional<std::string>& version) {
    return version.value_or("not found");
}

[[nodiscard]] std::string joined(const std::vector<std::string>& words) {
    std::string out;
    for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
    return out.empty() ? "none" : out;
}

[[nodiscard]] std::string cores_text(const HostFacts& host) {
    std::string out = text(host.cpu, ", ", host.cores.size(), " of ", host.cores_online, " core(s) allowed");
    if (host.cpu_limit) out += text(", limited to ", number_text(*host.cpu_limit), " by the control group");
    return out;
}

[[nodiscard]] std::string memory_text(const HostFacts& host) {
    std::string out =
        text(bytes_text(host.memory_total), ", ", bytes_text(host.memory_available), " available");
    if (host.memory_limit)
        out += text(", limited to ", bytes_text(*host.memory_limit), " by the control group");
    return out;
}

[[nodiscard]] std::string mpi_text(const LibraryFacts& libraries) {
    if (!libraries.mpi) return "not compiled in";
    if (!libraries.mpi_thread_level) return *libraries.mpi + ", not initialized";
    std::string out = text(*libraries.mpi, ", thread level ", *libraries.mpi_thread_level);
    if (libraries.mpi_cuda_aware) out += *libraries.mpi_cuda_aware ? ", CUDA-aware" : ", not CUDA-aware";
    return out;
}

[[nodiscard]] std::string onednn_text(const LibraryFacts& libraries) {
    if (!libraries.onednn) return "not compiled in";
    if (!dptk::SignalDelay::is_needed()) return *libraries.onednn;
    return *libraries.onednn +
           ", uses the stack pointer for other memory (its issue 4845): dptk delays signals";
}

void print_host(const HostFacts& host) {
    print("host " + host.name);
    print_field("system", text(host.system, ", ", host.kernel));
    print_field("CPU", cores_text(host));
    print_field("memory", memory_text(host));
    print_field("/dev/shm", host.shm_size ? text(bytes_text(*host.shm_size), ", ",
                                                 bytes_text(host.shm_free.value_or(0)), " free")
                                          : "not found");
}

void print_libraries(const LibraryFacts& libraries) {
    print_field("transports", joined(libraries.transports));
    print_field("MPI", mpi_text(libraries));
    print_field("Gloo", libraries.gloo ? "compiled in" : "not compiled in");
    print_field("oneDNN", onednn_text(libraries));
    print_field("CUDA", text("driver ", or_not_found(libraries.cuda_driver), ", runtime ",
                             or_not_found(libraries.cuda_runtime)));
    print_field("cuDNN", or_not_found(libraries.cudnn));
    print_field("NCCL", or_not_found(libraries.nccl));
}

void print_gpus(const GpuFacts& facts) {
    if (facts.gpus.empty()) {
        print_field("GPUs", facts.problem.empty() ? "none" : "none (" + facts.problem + ")");
    }
    for (std::size_t i = 0; i < facts.gpus.size(); ++i) {
        const Gpu& gpu = facts.gpus[i];
        print_field(text("GPU ", i).c_str(),
                    text(gpu.name, ", ", bytes_text(gpu.memory), ", ", gpu.bus_id, ", ", gpu.uuid));
    }
}

[[nodiscard]] std::string device_text(const RankFacts& rank) {
    return rank.device ? text("GPU ", *rank.device) : "CPU";
}

void print_ranks(const JobFacts& job) {
    std::vector<Row> rows{{"rank", "host", "local rank", "device", "cores"}};
    for (const RankFacts& rank : job.ranks) {
        rows.push_back({text(rank.rank), rank.host.name, text(rank.local_rank), device_text(rank),
                        list_text(rank.host.cores)});
    }
    print_table(rows);
}

[[nodiscard]] std::string slowest_text(const Slowest& slowest) {
    return text("rank ", slowest.rank, ", ", ratio_text(slowest.ratio), " times the median");
}

class TextReport final : public Report {
  public:
    void facts(const JobFacts& job) override {
        print("dptk " + job.ranks.front().libraries.dptk);
        const std::vector<Host> hosts = hosts_of(job);
        for (std::size_t i = 0; i < std::min(hosts.size(), described_hosts); ++i) {
            print_host(hosts[i].facts());
            print_libraries(hosts[i].ranks.front()->libraries);
            print_gpus(hosts[i].ranks.front()->gpu);
        }
        if (hosts.size() > described_hosts) {
            print(text("and ", hosts.size() - described_hosts, " more hosts, which --json lists"));
        }
        print(
            text("job of ", job.ranks.size(), " rank(s) over ", job.backend, ", started by ", job.launcher));
        print_ranks(job);
        flush();
    }

    void compute_begins() override {
        print("compute test");
        flush();
    }

    void compute(const JobFacts& job) override {
        const ComputeResult& result = *job.compute;
        print_field("work", result.work);
        std::vector<Row> rows{{"rank", "threads", "time"}};
        for (std::size_t rank = 0; rank < result.seconds.size(); ++rank) {
            rows.push_back({text(rank), text(result.threads[rank]), seconds_text(result.seconds[rank])});
        }
        print_table(rows);
        if (result.seconds.size() > 1) print_field("slowest", slowest_text(result.slowest));
        flush();
    }

    void messages_begin() override {
        print("message test");
        std::printf("  %-10s  %10s  %12s\n", "ranks", "latency", "bandwidth");
        flush();
    }

    void messages(const MessageResult& result) override {
        std::printf("  %-10s  %10s  %12s\n", text("0 and ", result.peer).c_str(),
                    seconds_text(result.latency).c_str(), rate_text(result.bytes_per_second).c_str());
        flush();
    }

    void all_reduce_begins() override {
        print("all-reduce test");
        std::printf("  %10s  %10s  %12s  %s\n", "size", "time", "bandwidth", "slowest");
        flush();
    }

    void all_reduce(const AllReduceResult& result) override {
        std::printf("  %10s  %10s  %12s  %s\n", bytes_text(result.bytes).c_str(),
                    seconds_text(result.seconds).c_str(), rate_text(result.bytes_per_second).c_str(),
                    slowest_text(result.slowest).c_str());
        flush();
    }

    void end(const JobFacts&, const std::vector<std::string>& remarks) override {
        print(remarks.empty() ? "no problems found" : "problems found");
        for (const std::string& remark : remarks) print("  - " + remark);
    }

  private:
    static void flush() { std::fflush(stdout); }
};

}  // namespace

std::unique_ptr<Report> make_text_report() {
    return std::make_unique<TextReport>();
}

}  // namespace info
