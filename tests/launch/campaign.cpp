// test_launch campaign FAULT MOMENT RANK DELAY [THREADS]: one job of scripts/fault-campaign, with one rank
// per process, or with THREADS ranks, one per thread. It trains a small model for some steps, and checks
// every number that it receives. When rank RANK reaches MOMENT, it injects FAULT: immediately, or DELAY
// milliseconds later from another thread while the program continues. The script itself injects the faults
// "full_disk", "garbage", "slow_link" and, while the rank waits, "cut_link".
#include <dptk/ddp.hpp>

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "command.hpp"

namespace launch::campaign {

namespace {

constexpr int steps = 8;
constexpr int faulty_step = 3;

struct Fault {
    std::string kind;
    std::string moment;
    int rank = 0;
    std::chrono::milliseconds delay{0};
};

/// Shuts down this process's connections, as a network device that drops them would.
void shut_connections() {
    for (int descriptor = 3; descriptor < 1024; ++descriptor) {
        sockaddr_storage peer{};
        socklen_t size = sizeof peer;
        if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
        if (peer.ss_family == AF_INET || peer.ss_family == AF_INET6) ::shutdown(descriptor, SHUT_RDWR);
    }
}

/// Stops this process. If `seconds` is not empty, another process continues it after this time.
void stop(const std::string& seconds) {
    if (!seconds.empty()) {
        const std::string command =
            "(sleep " + seconds + "; kill -CONT " + std::to_string(::getpid()) + ") >/dev/null 2>&1 &";
        if (std::system(command.c_str()) != 0) std::abort();
    }
    ::kill(::getpid(), SIGSTOP);
}

void inject_signal_or_socket(const std::string& kind) {
    if (kind == "kill") ::kill(::getpid(), SIGKILL);
    if (kind == "stop") stop("");
    if (kind == "short_stop") stop("0.7");
    if (kind == "kill_launcher") ::kill(::getppid(), SIGKILL);
    if (kind == "close_socket") shut_connections();
    if (kind == "_exit") ::_exit(5);
}

class Job {
  public:
    explicit Job(Fault fault) : fault_(std::move(fault)) {
        if (const char* rank = std::getenv("RANK")) rank_ = std::atoi(rank);
        for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
            if (const char* rank = std::getenv(variable)) rank_ = std::atoi(rank);
        }
    }

    Job(Fault fault, int rank) : fault_(std::move(fault)), rank_(rank) {}

    ~Job() {
        if (later_.joinable()) later_.join();
    }
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    void run() {
        at("before_init");
        {
            dptk::ProcessGroup group = dptk::init_process_group();
            work_in(group);
        }
        at("after");
    }

    void work_in(dptk::ProcessGroup& group) {
        at("construction");
        train(group);
        at("last_barrier");
        group.barrier();
        at("close");
    }

    [[nodiscard]] int rank() const { return rank_; }

  private:
    void train(dptk::ProcessGroup& group) {
        std::vector<float> values(1000, 1.0F), gradients(1000);
        dptk::DistributedDataParallel ddp(group, values, gradients);
        const auto mean = static_cast<float>(group.size() - 1) / 2;
        for (int step = 0; step < steps; ++step) {
            if (step == faulty_step) at("step");
            gradients.assign(1000, static_cast<float>(group.rank() + step));
            const bool skips = step == faulty_step && fault_.kind == "skip_step" && is_here("step");
            if (!skips) ddp.synchronize();
            for (const float gradient : gradients) {
                if (!skips && gradient != mean + static_cast<float>(step)) wrong(gradient);
            }
            const int sum = group.all_reduce_value(1);
            if (sum != group.size()) wrong(static_cast<float>(sum));
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
    }

    void wrong(float number) const {
        std::printf("WRONG number %g on rank %d\n", static_cast<double>(number), rank_);
        std::fflush(stdout);
    }

    [[nodiscard]] bool is_here(const std::string& moment) const {
        return fault_.moment == moment && fault_.rank == rank_;
    }

    void at(const std::string& moment) {
        if (!is_here(moment)) return;
        std::printf("rank %d: %s\n", rank_, fault_.kind.c_str());
        std::fflush(stdout);
        if (fault_.kind == "cut_link") return std::this_thread::sleep_for(std::chrono::seconds(1));
        if (fault_.kind == "exception") throw std::runtime_error("the reactor is on fire");
        if (fault_.kind == "exit_0") std::exit(0);
        if (fault_.kind == "exit_1") std::exit(1);
        if (fault_.delay.count() == 0) return inject_signal_or_socket(fault_.kind);
        later_ = std::thread([fault = fault_] {
            std::this_thread::sleep_for(fault.delay);
            inject_signal_or_socket(fault.kind);
        });
    }

    Fault fault_;
    int rank_ = 0;
    std::thread later_;
};

int run_rank(const Fault& fault) {
    Job job(fault);
    try {
        job.run();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d ends: %s\n", job.rank(), error.what());
        return 3;
    }
    std::printf("rank %d: done\n", job.rank());
    return 0;
}

int run_threads(const Fault& fault, int ranks) {
    try {
        const dptk::ThreadOptions options{.timeout = std::chrono::seconds(10)};
        dptk::launch_threads(
            ranks, [&](dptk::ProcessGroup& group) { Job(fault, group.rank()).work_in(group); }, options);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "the job ends: %s\n", error.what());
        return 3;
    }
    std::printf("all ranks: done\n");
    return 0;
}

int start(const Words& words) {
    if (words.size() < 4 || words.size() > 5) return 2;
    const Fault fault{words[0], words[1], std::stoi(words[2]),
                      std::chrono::milliseconds(std::stoi(words[3]))};
    return words.size() == 5 ? run_threads(fault, std::stoi(words[4])) : run_rank(fault);
}

const Command command("campaign", start);

}  // namespace

}  // namespace launch::campaign
