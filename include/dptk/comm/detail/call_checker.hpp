/// DPTK_DEBUG=detail: before each collective of a channel its ranks compare, over the control plane, what
/// they are about to do. Where they differ, or wait for each other in different groups, all of them throw the
/// same MismatchError, before anything has been communicated.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dptk/comm/algorithms/run.hpp"
#include "dptk/comm/all_reduce_algorithm.hpp"
#include "dptk/comm/collective.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/control/health/call_tracker.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// On which channel the program itself waits, and which calls it has made. Only where all come from one
/// thread is a rank that waits in one group known not to come to another one meanwhile. One object for all
/// channels of a rank.
class WaitingCaller {
  public:
    /// The calling thread waits on that channel, for as long as this lives.
    class Here {
      public:
        Here(WaitingCaller& caller, const std::string& channel);
        ~Here();
        Here(const Here&) = delete;
        Here& operator=(const Here&) = delete;

      private:
        WaitingCaller& caller_;
    };

    [[nodiscard]] bool waits_on(std::string_view channel) const;

    /// The program has made a call on that channel, to which it, or a thread of its group, will come.
    void promise(const std::string& channel);

    void forget(const std::string& channel);

    /// The number of calls made, by channel.
    [[nodiscard]] std::map<std::string, std::uint64_t> promised() const;

  private:
    void begin(const std::string& channel);

    mutable std::mutex mutex_;
    std::optional<std::thread::id> thread_;
    bool several_threads_ = false;
    std::string channel_;
    std::map<std::string, std::uint64_t> promised_;
};

/// Where a rank waits: in which call, of which channel, for whom; and to which calls it comes all the same.
struct WaitingPlace {
    std::string channel;
    std::uint64_t number = 0;
    std::vector<int> ranks;
    std::string call;
    std::map<std::string, std::uint64_t> promised = {};

    friend bool operator==(const WaitingPlace&, const WaitingPlace&) = default;

    [[nodiscard]] std::string to_value() const;

    [[nodiscard]] static std::optional<WaitingPlace> from_value(std::string_view value);

    [[nodiscard]] bool is_same_call(const WaitingPlace& other) const;

    [[nodiscard]] bool promises(const WaitingPlace& other) const;
};

class CallChecker {
  public:
    /// Of a channel with several ranks, whose control plane has a store.
    CallChecker(std::shared_ptr<ControlPlane> control, std::shared_ptr<CallTracker> activity,
                std::shared_ptr<WaitingCaller> caller, Progress progress);

    [[nodiscard]] WaitingCaller& caller() const noexcept { return *caller_; }
    [[nodiscard]] const std::string& channel() const noexcept { return tracker_->name(); }

    /// Blocks until all ranks have come to this call, or their calls are known to differ: then it throws
    /// MismatchError, which is agreed.
    void check(const Collective& call, AllReduceAlgorithm algorithm);

    /// The program has made a call that is about to be checked.
    void promise();

    /// This rank comes to no further call: the others need not wait for it.
    void leave();

  private:
    static constexpr std::string_view agreed_verdict = "agreed";
    static constexpr std::chrono::milliseconds moment{200};
    /// How long all ranks may take to come before it is looked at why they do not.
    static constexpr std::chrono::milliseconds patience{1000};

    void agree_on(const Collective& call, AllReduceAlgorithm algorithm);

    [[nodiscard]] const std::vector<int>& ranks() const noexcept { return tracker_->identity().ranks; }

    [[nodiscard]] static std::string key(const WaitingPlace& place, std::string_view what);
    [[nodiscard]] static std::string waiting_key(int rank);
    [[nodiscard]] static std::string arrival_key(std::string_view channel, int rank);

    [[nodiscard]] std::string own_call(const WaitingPlace& here) const;
    [[nodiscard]] static std::string_view call_in(std::string_view first);
    [[nodiscard]] static int rank_in(std::string_view first);

    /// All that must be the same on all ranks.
    [[nodiscard]] static std::string fingerprint(const Collective& call, AllReduceAlgorithm algorithm);

    void post_verdict(const WaitingPlace& place, std::string_view verdict);

    /// The verdict on those who have come.
    [[nodiscard]] std::string compare(const WaitingPlace& here, std::string_view first);

    [[nodiscard]] std::string await(const WaitingPlace& here, std::string_view first);

    /// Tells the other ranks where this one waits, and for whom, where it is the program itself that does.
    bool tell_where(const WaitingPlace& here);

    /// To which of the channel's calls a rank has come last.
    struct Arrival {
        std::uint64_t number = 0;
        bool left = false;
    };

    [[nodiscard]] Arrival arrival(std::string_view channel, int rank);

    /// A rank may be in a call by a thread of its group, while it waits in another one itself.
    [[nodiscard]] bool has_arrived(int rank, const WaitingPlace& place);

    /// A rank that has closed the channel without coming to this call.
    [[nodiscard]] std::optional<int> find_left(const WaitingPlace& here);

    [[nodiscard]] PeerLostError lost(const WaitingPlace& here, int rank);

    [[nodiscard]] std::map<int, WaitingPlace> read_waiting();

    /// Those that are seen to wait for each other twice have all done so in between, since calls are
    /// numbered, unless a call has been decided and its rank does not know yet.
    void look_for_circle();

    /// All ranks have come to the call after it.
    void forget(std::uint64_t number);

    std::shared_ptr<ControlPlane> control_;
    std::shared_ptr<CallTracker> tracker_;
    std::shared_ptr<WaitingCaller> caller_;
    Progress progress_;
    std::shared_ptr<Store> store_;
    std::uint64_t calls_ = 0;
};

/// A checked operation on a channel's thread: while somebody waits for its end, the caller waits on that
/// channel. Who waits for a while only comes elsewhere by himself.
class CheckedWork final : public WorkState {
  public:
    CheckedWork(std::shared_ptr<WorkState> work, std::shared_ptr<CallChecker> checker);

    DPTK_INLINE bool wait(std::chrono::nanoseconds timeout) override;

    std::exception_ptr error() override { return work_->error(); }
    std::exception_ptr unseen_error() override { return work_->unseen_error(); }
    [[nodiscard]] int source_rank() const override { return work_->source_rank(); }

  private:
    std::shared_ptr<WorkState> work_;
    std::shared_ptr<CallChecker> checker_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/call_checker.ipp"
#endif
