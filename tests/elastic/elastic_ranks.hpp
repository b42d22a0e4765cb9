/// Ranks of an elastic job, as processes that the test starts and kills. The test serves the store and forms
/// the generations, as dptk-run does.
#pragma once

#include <dptk/control/elastic/membership_keys.hpp>
#include <dptk/control/elastic/membership_monitor.hpp>
#include <dptk/control/store/tcp_store_server.hpp>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

class ElasticRanks {
  public:
    /// `program` runs in each process, and returns its exit status. It receives the port of the store.
    ElasticRanks(const dptk::detail::MembershipRules& rules, std::function<int(std::uint16_t port)> program)
        : program_(std::move(program)),
          heartbeat_timeout_(rules.heartbeat_timeout),
          monitor_(rules, Clock::now()) {
        for (std::size_t i = 0; i < rules.first_size; ++i) start();
    }

    ~ElasticRanks() {
        for (const auto& [id, process] : running_) {
            kill(process, SIGKILL);
            waitpid(process, nullptr, 0);
        }
    }

    /// Starts a process. Returns its number.
    dptk::detail::MemberId start() {
        const dptk::detail::MemberId id = store_->add(dptk::detail::MembershipKeys::members, 1);
        const pid_t process = fork();
        if (process == 0) {
            setenv("DPTK_ELASTIC", ("127.0.0.1:" + std::to_string(server_.port())).c_str(), 1);
            setenv("DPTK_RUN_ID", "test", 1);
            setenv("DPTK_MEMBER", std::to_string(id).c_str(), 1);
            std::_Exit(program_(server_.port()));
        }
        running_[id] = process;
        return id;
    }

    void send(dptk::detail::MemberId id, int signal) { kill(running_.at(id), signal); }

    /// Forms generations until the condition is true; returns false if it is not within `time`.
    bool run_until(const std::function<bool()>& condition,
                   std::chrono::seconds time = std::chrono::seconds(30)) {
        const auto end = Clock::now() + time;
        while (!condition()) {
            if (Clock::now() > end) return false;
            reap();
            monitor_.look(*store_, Clock::now());
            monitor_.erase_earlier(server_);
            const dptk::detail::Generation& now = monitor_.generation();
            if (store_->find(dptk::detail::MembershipKeys::generation(now.number) + "/formed"))
                complete_ = now.members;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return true;
    }

    bool run_until_all_have_ended(std::chrono::seconds time = std::chrono::seconds(60)) {
        return run_until([&] { return running_.empty(); }, time);
    }

    /// How often a process is killed, or stopped for longer than the heartbeat timeout, in percent. Otherwise
    /// one is started.
    struct Odds {
        unsigned kill;
        unsigned stop;
    };

    /// Kills, stops or starts a process at random, unless no process would have the state, or six run.
    void disturb(std::minstd_rand& random, const Odds& odds) {
        auto victim = running_.begin();
        std::advance(victim, random() % running_.size());
        const dptk::detail::MemberId id = victim->first;
        const auto action = random() % 100;
        if (action < odds.kill && can_lose(id)) {
            send(id, SIGKILL);
            static_cast<void>(run_until([&] { return !running_.contains(id); }));
        } else if (action >= 100 - odds.stop && can_lose(id)) {
            send(id, SIGSTOP);
            const auto end = Clock::now() + 2 * heartbeat_timeout_;
            static_cast<void>(run_until([&] { return Clock::now() > end; }));
            send(id, SIGCONT);
        } else if (running_.size() < 6) {
            static_cast<void>(start());
        }
    }

    /// The processes that have ended otherwise than with the status 0, and not by SIGKILL.
    [[nodiscard]] int failures() const { return failures_; }

    [[nodiscard]] const std::map<dptk::detail::MemberId, pid_t>& running() const { return running_; }
    /// Whether another process than this one has the state of the work, so that the job can continue.
    [[nodiscard]] bool can_lose(dptk::detail::MemberId id) const {
        return std::any_of(complete_.begin(), complete_.end(), [&](auto other) {
            return other != id && running_.contains(other) && monitor_.generation().contains(other);
        });
    }

    [[nodiscard]] const dptk::detail::MembershipMonitor& monitor() const { return monitor_; }

    /// The job's store, in which the ranks of a test may write as well.
    [[nodiscard]] dptk::Store& store() { return *store_; }

  private:
    using Clock = dptk::detail::MembershipMonitor::clock;

    void reap() {
        for (auto rank = running_.begin(); rank != running_.end();) {
            int status = 0;
            if (waitpid(rank->second, &status, WNOHANG) == 0) {
                ++rank;
                continue;
            }
            const bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
            const bool is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
            const bool is_late = !monitor_.over().empty();  // the others had finished before it could join
            if (!well && !is_killed && !is_late) ++failures_;
            store_->compare_and_set(
                dptk::detail::MembershipKeys::ended(rank->first), "",
                well ? std::string(dptk::detail::MembershipKeys::finished) : "was killed");
            rank = running_.erase(rank);
        }
    }

    std::function<int(std::uint16_t)> program_;
    std::chrono::milliseconds heartbeat_timeout_;
    dptk::TcpStoreServer server_{{.bind_address = "127.0.0.1", .token = "/test"}};
    std::shared_ptr<dptk::Store> store_ = server_.local();
    dptk::detail::MembershipMonitor monitor_;
    std::map<dptk::detail::MemberId, pid_t> running_;
    std::vector<dptk::detail::MemberId> complete_;  // the members of the last complete generation
    int failures_ = 0;
};
