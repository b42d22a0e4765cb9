/// Elastic threads: the ranks of an elastic job that are threads of one process.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "dptk/comm/detail/elastic_group.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/comm/thread.hpp"
#include "dptk/control/elastic/generation.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Forms the generations of the threads. All threads share it.
class ThreadMembers {
  public:
    /// The members 1 to `size` have come.
    ThreadMembers(int size, std::chrono::milliseconds timeout);

    [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return timeout_; }

    /// Returns the number of a new member, which comes now.
    [[nodiscard]] MemberId arrive();

    struct Joined {
        Generation generation;
        std::shared_ptr<const ThreadJob> job;
    };

    /// Leaves the current generation, and waits for the next one. Throws PeerLostError if the job has ended,
    /// and TimeoutError if another thread does not leave the generation in time.
    [[nodiscard]] Joined join(MemberId member);

    void note_formed(const Generation& generation);
    void note_finishing(const Generation& generation);

    /// Reports that a member has ended: by an exception, whose text is `failure`, or without one. Returns its
    /// rank in the current generation, or nullopt if it is in none.
    std::optional<int> end(MemberId member, const std::optional<std::string>& failure);

    /// Whether members can still join.
    [[nodiscard]] bool is_over() const;

  private:
    [[nodiscard]] bool may_form() const;
    void form_if_due();
    void admit_if_due();
    /// Ends the job if all members that had its state have ended.
    void end_job_if_due();

    const std::chrono::milliseconds timeout_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    MemberId last_ = 0;
    std::set<MemberId> running_;
    std::set<MemberId> voted_;  // those that wait for the next generation
    Generation current_;
    std::set<MemberId> holders_;            // the members that have had the state together last
    std::shared_ptr<const ThreadJob> job_;  // that of the current generation
    bool is_formed_ = false;
    bool is_finishing_ = false;
    bool has_finished_ = false;  // whether a member has ended without an exception
    std::string over_;           // why the job has ended for those that still want to join
};

class ElasticThread final : public ElasticGroup {
  public:
    ElasticThread(std::shared_ptr<ThreadMembers> members, MemberId id)
        : members_(std::move(members)), id_(id) {}

  private:
    [[nodiscard]] DPTK_INLINE ProcessGroup connect() override;
    [[nodiscard]] const Generation& current() const override { return joined_.generation; }
    [[nodiscard]] DPTK_INLINE std::optional<std::string> why_ended() override;
    void note_formed() override { members_->note_formed(joined_.generation); }
    void note_finishing() override { members_->note_finishing(joined_.generation); }

    std::shared_ptr<ThreadMembers> members_;
    MemberId id_;
    ThreadMembers::Joined joined_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/thread/elastic_threads.ipp"
#endif
