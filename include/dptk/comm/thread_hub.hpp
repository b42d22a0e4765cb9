/// The meeting place of thread ranks: each posts its call, sees everybody's, and leaves when all have
/// finished. A rank that fails or goes away ends the others' waits.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/thread_messages.hpp"
#include "dptk/control/job_health.hpp"

namespace dptk::detail {

class ThreadHub final : public Wakeable {
  public:
    ThreadHub(int size, std::shared_ptr<JobHealth> health)
        : size_(size),
          health_(std::move(health)),
          mailbox_(std::make_shared<ThreadMailbox>(size, health_)),
          calls_(static_cast<std::size_t>(size)) {}

    /// A hub that is woken by its job's failure.
    [[nodiscard]] static std::shared_ptr<ThreadHub> make(int size, const std::shared_ptr<JobHealth>& health) {
        auto hub = std::make_shared<ThreadHub>(size, health);
        health->subscribe(hub);
        health->subscribe(hub->mailbox_);
        return hub;
    }

    [[nodiscard]] int size() const noexcept { return size_; }
    [[nodiscard]] ThreadMailbox& mailbox() noexcept { return *mailbox_; }

    /// Posts this rank's call and waits for all others'. From its return until finish(), calls() may be read,
    /// and the memory that they name may be used as the ranks have agreed. Throws PeerLostError when a rank
    /// is lost.
    void meet(int rank, const Collective& call) {
        calls_[static_cast<std::size_t>(rank)] = call;
        pass(Waiting::may_fail);
    }

    /// Waits until all ranks are done with each other's memory. Nobody waits for anything between meet and
    /// finish, so this ends even where the job has failed meanwhile: no rank goes while another touches its
    /// memory.
    void finish() { pass(Waiting::must_end); }

    /// This rank has not done its part of the call. Before finish().
    void spoil() noexcept { spoiled_ = true; }

    /// After finish(): throws PeerLostError where another rank has not done its part.
    void check_complete() const {
        if (!spoiled_) return;
        constexpr std::chrono::milliseconds soon{2000};  // until that rank has said why
        static_cast<void>(health_->wait_until_failed(soon));
        health_->check();
        throw PeerLostError("another rank has not done its part of the call");
    }

    /// Everybody's calls, by rank.
    [[nodiscard]] const std::vector<Collective>& calls() const noexcept { return calls_; }

    /// The hub of that name for `size` of the ranks: the first of them to come makes it.
    [[nodiscard]] std::shared_ptr<ThreadHub> part(std::string_view name, int size) {
        const std::lock_guard lock(mutex_);
        Part& part = parts_[std::string(name)];
        if (!part.hub) part.hub = make(size, health_);
        std::shared_ptr<ThreadHub> hub = part.hub;
        if (++part.taken == size) parts_.erase(std::string(name));
        return hub;
    }

    /// This rank will not come again.
    void leave(int rank) noexcept {
        mailbox_->leave(rank);
        {
            const std::lock_guard lock(mutex_);
            if (left_ < 0) left_ = rank;
        }
        changed_.notify_all();
    }

    void wake() noexcept override {
        { const std::lock_guard lock(mutex_); }  // whoever has looked already is waiting by now
        changed_.notify_all();
    }

  private:
    enum class Waiting { may_fail, must_end };

    struct Part {
        std::shared_ptr<ThreadHub> hub;
        int taken = 0;
    };

    /// A barrier. With Waiting::may_fail it throws when a rank is lost before all are here.
    void pass(Waiting waiting) {
        std::unique_lock lock(mutex_);
        if (waiting == Waiting::may_fail && is_lost()) throw_lost();
        const std::uint64_t phase = phase_;
        if (++arrived_ == size_) {
            arrived_ = 0;
            phase_ = phase + 1;
            lock.unlock();
            changed_.notify_all();
            return;
        }
        lock.unlock();
        for (int spin = 0; spin < spins && phase_ == phase; ++spin) std::this_thread::yield();
        if (phase_ != phase) return;
        lock.lock();
        changed_.wait(lock, [&] { return phase_ != phase || (waiting == Waiting::may_fail && is_lost()); });
        if (phase_ == phase) {
            dead_ = true;  // somebody has given up: this meeting can never be complete
            changed_.notify_all();
            throw_lost();
        }
    }

    [[nodiscard]] bool is_lost() const { return dead_ || left_ >= 0 || health_->failed(); }

    [[noreturn]] void throw_lost() const {
        health_->check();
        if (left_ >= 0) throw PeerLostError(text("rank ", left_, " has left the group"));
        throw PeerLostError("another rank has given up waiting");
    }

    /// Short meetings end while yielding; a condition variable costs tens of microseconds.
    static constexpr int spins = 64;

    const int size_;
    const std::shared_ptr<JobHealth> health_;
    const std::shared_ptr<ThreadMailbox> mailbox_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Collective> calls_;
    std::map<std::string, Part, std::less<>> parts_;
    int arrived_ = 0;
    std::atomic<std::uint64_t> phase_ = 0;
    int left_ = -1;
    bool dead_ = false;
    std::atomic<bool> spoiled_ = false;
};

}  // namespace dptk::detail
