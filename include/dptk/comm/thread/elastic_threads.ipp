#pragma once

#include "dptk/comm/thread/elastic_threads.hpp"

#include <atomic>
#include <exception>
#include <future>
#include <thread>
#include <vector>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE ThreadMembers::ThreadMembers(int size, std::chrono::milliseconds timeout) : timeout_(timeout) {
    for (int i = 0; i < size; ++i) static_cast<void>(arrive());
}

DPTK_INLINE MemberId ThreadMembers::arrive() {
    const std::lock_guard lock(mutex_);
    running_.insert(++last_);
    return last_;
}

DPTK_INLINE ThreadMembers::Joined ThreadMembers::join(MemberId member) {
    std::unique_lock lock(mutex_);
    const std::int64_t before = current_.number;
    voted_.insert(member);
    form_if_due();
    admit_if_due();
    end_job_if_due();
    if (!changed_.wait_for(lock, timeout_, [&] { return current_.number != before || !over_.empty(); }))
        throw TimeoutError(text("launch_threads: a rank has waited for ", duration_text(timeout_),
                                " for the others to call reform() as well"));
    if (current_.number == before) throw PeerLostError("the elastic job has ended: " + over_);
    return {current_, job_};
}

DPTK_INLINE bool ThreadMembers::may_form() const {
    if (voted_.empty()) return false;
    const auto is_awaited = [&](MemberId member) {
        return (current_.number == 0 || current_.contains(member)) && !voted_.contains(member);
    };
    const auto has_state = [&](MemberId member) { return holders_.contains(member); };
    return detail::none_of(running_, is_awaited) && (holders_.empty() || detail::any_of(voted_, has_state));
}

DPTK_INLINE void ThreadMembers::form_if_due() {
    if (!may_form()) return;
    job_ = std::make_shared<const ThreadJob>(static_cast<int>(voted_.size()),
                                             ThreadOptions{.timeout = timeout_, .elastic = true});
    current_ = {current_.number + 1, {voted_.begin(), voted_.end()}};
    is_formed_ = is_finishing_ = false;
    voted_.clear();
    changed_.notify_all();
}

DPTK_INLINE void ThreadMembers::admit_if_due() {
    if (voted_.empty() || !is_formed_ || is_finishing_) return;
    job_->job_state->fail("a new rank joins");
}

DPTK_INLINE void ThreadMembers::end_job_if_due() {
    const auto runs = [&](MemberId member) { return running_.contains(member); };
    if (holders_.empty() || detail::any_of(holders_, runs)) return;
    over_ = has_finished_ ? "all ranks that had its state have finished"
                          : "all ranks that had its state have ended";
    changed_.notify_all();
}

DPTK_INLINE void ThreadMembers::note_formed(const Generation& generation) {
    const std::lock_guard lock(mutex_);
    if (generation.number != current_.number) return;
    is_formed_ = true;
    holders_ = {current_.members.begin(), current_.members.end()};
    admit_if_due();
}

DPTK_INLINE void ThreadMembers::note_finishing(const Generation& generation) {
    const std::lock_guard lock(mutex_);
    if (generation.number == current_.number) is_finishing_ = true;
}

DPTK_INLINE std::optional<int> ThreadMembers::end(MemberId member,
                                                  const std::optional<std::string>& failure) {
    const std::lock_guard lock(mutex_);
    running_.erase(member);
    voted_.erase(member);
    std::optional<int> rank;
    if (current_.contains(member)) rank = current_.rank_of(member);
    if (!failure) has_finished_ = true;
    if (failure && rank) job_->job_state->fail(text("rank ", *rank, ": ", *failure));
    form_if_due();
    end_job_if_due();
    return rank;
}

DPTK_INLINE bool ThreadMembers::is_over() const {
    const std::lock_guard lock(mutex_);
    return !over_.empty();
}

DPTK_INLINE ProcessGroup ElasticThread::connect() {
    joined_ = members_->join(id_);
    return ThreadCommunicator(joined_.job->transport(joined_.generation.rank_of(id_)));
}

DPTK_INLINE std::optional<std::string> ElasticThread::why_ended() {
    const JobState& state = *joined_.job->job_state;
    return state.failed() ? std::optional(state.cause()) : std::nullopt;
}

/// What the threads of an elastic job share with the thread that waits for them.
class ElasticThreads {
  public:
    ElasticThreads(int size, const std::function<void(ProcessGroup&)>& fn, const ThreadOptions& options)
        : fn_(fn),
          max_restarts_(options.max_restarts),
          members_(std::make_shared<ThreadMembers>(size, timeout_of(options))) {}

    /// Runs a rank, and those that take its place.
    void run(MemberId id) {
        while (run_once(id)) id = members_->arrive();
    }

    /// Throws the first exception if no rank has returned from fn.
    void check() const {
        if (has_finished_) return;
        if (cause_) std::rethrow_exception(cause_);
        if (consequence_) std::rethrow_exception(consequence_);
    }

  private:
    /// Returns whether the rank has failed, and another one is to take its place.
    bool run_once(MemberId id) {
        std::optional<ProcessGroup> group;  // destroyed after the rank's end is reported
        try {
            group.emplace(
                ElasticGroup::start(std::make_shared<ElasticThread>(members_, id), members_->timeout()));
            fn_(*group);
            has_finished_ = true;
            members_->end(id, std::nullopt);
            return false;
        } catch (...) {
            return note_failure(id);
        }
    }

    /// Returns whether another rank is to take the place of this one, whose exception is being handled.
    bool note_failure(MemberId id) {
        const Failure failure = keep_exception();
        const std::optional<int> rank = members_->end(id, failure.text);
        if (members_->is_over()) return false;
        const int restart = failure.is_agreed ? max_restarts_ + 1 : ++restarts_;
        const bool restarts = restart <= max_restarts_;
        log(LogLevel::warning, rank.value_or(-1),
            text("a thread of an elastic job has ended: ", failure.text,
                 restarts ? text("; starting another one (restart ", restart, " of ", max_restarts_, ')')
                          : "; the others continue without it"));
        return restarts;
    }

    struct Failure {
        std::string text;
        bool is_agreed = false;  ///< whether all ranks throw it
    };

    /// Keeps the exception that is being handled, if it is the first of its kind.
    Failure keep_exception() {
        const std::lock_guard lock(mutex_);
        const auto keep = [](std::exception_ptr& first) {
            if (!first) first = std::current_exception();
        };
        try {
            throw;
        } catch (const PeerLostError& error) {
            keep(consequence_);
            return {error.what()};
        } catch (const Error& error) {
            keep(cause_);
            return {error.what(), error.agreed()};
        } catch (const std::exception& error) {
            keep(cause_);
            return {error.what()};
        } catch (...) {
            keep(cause_);
            return {"an exception that is not derived from std::exception"};
        }
    }

    const std::function<void(ProcessGroup&)>& fn_;
    const int max_restarts_;
    std::shared_ptr<ThreadMembers> members_;
    std::atomic<int> restarts_ = 0;
    std::atomic<bool> has_finished_ = false;
    std::mutex mutex_;
    std::exception_ptr cause_;
    std::exception_ptr consequence_;
};

DPTK_INLINE void run_as_elastic_threads(int size, const std::function<void(ProcessGroup&)>& fn,
                                        const ThreadOptions& options) {
    const ThreadJob checked(size, options);  // throws here if a setting is invalid
    ElasticThreads job(size, fn, options);
    std::promise<bool> decision;  // whether the threads run their ranks
    const std::shared_future<bool> is_started = decision.get_future().share();
    {
        std::vector<std::jthread> threads;
        try {
            for (int i = 0; i < size; ++i)
                threads.emplace_back([&job, is_started, i] {
                    if (is_started.get()) job.run(i + 1);
                });
        } catch (const std::exception& error) {
            decision.set_value(false);
            throw Error(
                text("thread ", threads.size(), " of ", size, " could not be started: ", error.what()));
        }
        decision.set_value(true);
    }
    job.check();
}

}  // namespace DPTK_NAMESPACE::detail
