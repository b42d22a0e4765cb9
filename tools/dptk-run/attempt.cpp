#include "attempt.hpp"

#include <dptk/control/health/failure_report.hpp>
#include <dptk/control/process/child_process.hpp>
#include <dptk/control/process/deadline.hpp>
#include <dptk/core/detail/text.hpp>

#include <sys/wait.h>

#include <algorithm>
#include <csignal>

#include "orphans.hpp"

namespace run {

using dptk::detail::AwakeClock;
using dptk::detail::StopSchedule;
using dptk::detail::text;

namespace {

/// After a signal has ended the job, dptk-run waits at most this long for a reader of its output that does
/// not read.
constexpr std::chrono::seconds reader_timeout{1};

}  // namespace

Attempt::Attempt(const Job& job, const Rendezvous& rendezvous, const Signals& signals, Guard& guard,
                 Console& console, ElasticMembers* members)
    : job_(job),
      rendezvous_(rendezvous),
      signals_(signals),
      guard_(guard),
      console_(console),
      members_(members),
      schedule_(job.shutdown_timeout) {}

AttemptResult Attempt::run() {
    try {
        start_ranks();
        supervise();
    } catch (...) {
        kill_reason_ = "not all ranks could be started";
        schedule_.kill(AwakeClock::now());
        supervise();
        throw;
    }
    if (members_ && result_.signal == 0 && last_loss_ && !members_->has_finished()) {
        if (result_.ends.empty()) result_.ends.push_back(*last_loss_);
        result_.failed = true;
    }
    for (const auto& rank : ranks_) result_.tails.push_back(rank->tail());
    return std::move(result_);
}

void Attempt::start_ranks() {
    for (int local_rank = 0; local_rank < job_.local_size; ++local_rank)
        ranks_.push_back(start_rank(local_rank));
}

std::unique_ptr<Rank> Attempt::start_rank(int local_rank) {
    auto rank =
        std::make_unique<Rank>(job_, rendezvous_, local_rank, signals_, console_, last_writers_, members_);
    guard_.watch(rank->process());
    return rank;
}

void Attempt::supervise() {
    while (true) {
        const Time now = AwakeClock::now();
        handle_signals(now);
        reap(now);
        if (members_) members_->look();
        end_job_of_stopped_rank(now);
        act(schedule_.due(now));
        if (all_ended() && !all_gone_since_) end_remaining_orphans(now);
        forward_output();
        watch_console(now);
        const bool serves_others = members_ && result_.signal == 0 && members_->is_needed();
        if (all_gone_since_ && !serves_others &&
            (all_read() || (result_.signal != 0 && now > *all_gone_since_ + reader_timeout))) {
            return;
        }
        wait_for_events(now);
    }
}

void Attempt::handle_signals(Time now) {
    while (const std::optional<int> signal = signals_.next()) handle_signal(*signal, now);
}

void Attempt::handle_signal(int signal, Time now) {
    if (signal == SIGCHLD) return;
    if (!asks_to_end(signal)) {
        for (const auto& rank : ranks_) {
            if (!rank->ended) kill(rank->process(), signal);
        }
        return;
    }
    if (schedule_.asked()) {
        if (signal == SIGINT) {
            kill_reason_ = "second SIGINT";
            schedule_.kill(now);
        }
    } else {
        console_.say(text("received ", dptk::detail::signal_name(signal),
                          ": ending the ranks; those that still run after ",
                          dptk::detail::duration_text(job_.shutdown_timeout),
                          signal == SIGINT ? " are killed, or at a second SIGINT" : " are killed"));
        stop_signal_ = signal;
        schedule_.stop(now);
    }
    if (result_.signal == 0) result_.signal = signal;
}

void Attempt::watch_console(Time now) {
    if (!console_.closed() || result_.signal != 0) return;
    console_.say("the reader of the output has closed it: ending the ranks");
    result_.signal = SIGPIPE;
    schedule_.stop(now);
}

void Attempt::reap(Time now) {
    int status = 0;
    pid_t process = 0;
    while ((process = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
        const auto rank = std::ranges::find_if(
            ranks_, [&](const auto& one) { return !one->ended && one->process() == process; });
        if (rank != ranks_.end()) record_change(*rank, status, now);
    }
}

void Attempt::record_change(std::unique_ptr<Rank>& rank, int wait_status, Time now) {
    if (WIFSTOPPED(wait_status) || WIFCONTINUED(wait_status)) {
        rank->stop_signal = WIFSTOPPED(wait_status) ? WSTOPSIG(wait_status) : 0;
        rank->stopped_since = now;
        return;
    }
    rank->ended = true;
    guard_.forget(rank->process());
    result_.ends.push_back({.rank = rank->number(),
                            .process = rank->process(),
                            .end = dptk::detail::ChildEnd(wait_status),
                            .after = Clock::now() - start_,
                            .note = dptk::detail::read_failure_report(rank->report_path().c_str()),
                            .asked_to_end = schedule_.asked()});
    if (members_) return replace_if_lost(rank, now);
    if (result_.ends.back().end.well()) return;
    schedule_.failure(now);
    if (result_.signal == 0 && !schedule_.asked()) result_.failed = true;
}

/// In an elastic job, the other ranks continue without a rank that has ended. Starts another process in its
/// place if --max-restarts allows it. Ends the job if no rank is left that could continue.
void Attempt::replace_if_lost(std::unique_ptr<Rank>& rank, Time now) {
    const dptk::detail::RankEnd end = result_.ends.back();
    members_->note_end(rank->member(), end.end);
    if (end.end.well() || schedule_.asked()) return;
    if (members_->others_have_finished()) return result_.ends.pop_back();  // it came too late to join them
    if (members_->has_finished()) {  // the others are about to end as well
        result_.failed = true;
        return;
    }
    const bool has_begun = members_->has_begun();
    const bool is_last = std::ranges::all_of(ranks_, [](const auto& one) { return one->ended; });
    const bool can_continue =
        members_->over().empty() && (job_.has_several_hosts() || !has_begun || !is_last);
    const bool is_replaced = can_continue && replacements_ < job_.options.max_restarts;
    if (!is_replaced && !(can_continue && has_begun)) {
        schedule_.failure(now);
        result_.failed = true;
        return;
    }
    std::string message = text("rank ", end.rank, " (process ", end.process, ") has ended: ", end.end.text());
    if (end.note) message += text(": ", end.note->text);
    result_.ends.pop_back();  // not a reason why the job fails later
    if (!is_replaced) {
        last_loss_ = end;
        return console_.say(text(message, "; the others continue without it"));
    }
    read_rest(*rank);
    console_.say(
        text(message, "; replacing it (restart ", ++replacements_, " of ", job_.options.max_restarts, ")"));
    rank = start_rank(rank->local_rank());
}

/// Ends the job if a rank has been stopped for longer than stop_timeout. The ranks' heartbeats do not detect
/// this if the stopped rank, or all others, have closed their process groups.
void Attempt::end_job_of_stopped_rank(Time now) {
    if (members_) return;  // the others continue without it
    for (const auto& rank : ranks_) {
        if (rank->ended || rank->stop_signal == 0) continue;
        if (schedule_.asked() || result_.failed || now < rank->stopped_since + job_.stop_timeout) continue;
        console_.say(text("rank ", rank->number(), " (process ", rank->process(), ") has been stopped by ",
                          dptk::detail::signal_name(rank->stop_signal), " for ",
                          dptk::detail::duration_text(job_.stop_timeout), ": ending the ranks"));
        result_.failed = true;
        schedule_.stop(now);
    }
}

void Attempt::act(StopSchedule::Action action) {
    if (action == StopSchedule::Action::none) return;
    const bool ask = action == StopSchedule::Action::ask;
    std::vector<int> killed;
    for (const auto& rank : ranks_) {
        if (rank->ended) continue;
        if (ask && rank->stop_signal != 0) result_.stopped.push_back({rank->number(), rank->stop_signal});
        if (ask) {
            dptk::detail::ask_to_end(rank->process(), stop_signal_);
        } else {
            dptk::detail::kill_rank(rank->process());
            killed.push_back(rank->number());
        }
    }
    const std::vector<pid_t> orphans = end_orphans(ask ? stop_signal_ : SIGKILL);
    if (!ask) report_killed(killed, orphans);
}

void Attempt::report_killed(const std::vector<int>& ranks, const std::vector<pid_t>& orphans) {
    std::string reason = kill_reason_;
    if (reason.empty()) {
        reason = dptk::detail::still_running_text(job_.shutdown_timeout, stop_signal_, "--shutdown-timeout");
    }
    if (!ranks.empty()) console_.say(text(dptk::detail::killed_text(ranks), ": ", reason));
    for (const pid_t orphan : orphans)
        console_.say(text("killed process ", orphan, ", which a rank has started: ", reason));
}

/// Sends a signal to all orphans, and returns them.
std::vector<pid_t> Attempt::end_orphans(int signal) {
    std::vector<pid_t> orphans = find_orphans(known_processes());
    for (const pid_t orphan : orphans) {
        kill(orphan, signal);
        kill(orphan, SIGCONT);
    }
    return orphans;
}

/// Ends the processes that ranks have started and that still run after all ranks have ended. Asks them to
/// end, and kills those that do not end within the shutdown timeout, as for ranks.
void Attempt::end_remaining_orphans(Time now) {
    if (find_orphans(known_processes()).empty()) {
        all_gone_since_ = now;
    } else if (schedule_.killed()) {
        end_orphans(SIGKILL);  // repeatedly, because the children of a killed process become orphans as well
    } else {
        schedule_.stop(now);
    }
}

void Attempt::forward_output() {
    const Clock::time_point now = Clock::now();
    for (const auto& rank : ranks_) {
        for (RankStream& stream : rank->streams()) stream.flush_if_due(now, rank->tail());
    }
    if (all_gone_since_) read_rest();
    console_.flush();
}

/// Reads what is left in the pipes. No process is left that could write more.
void Attempt::read_rest() {
    for (const auto& rank : ranks_) read_rest(*rank);
}

void Attempt::read_rest(Rank& rank) {
    for (RankStream& stream : rank.streams()) {
        while (stream.read_end() >= 0) {
            if (!stream.read(rank.tail()) && !stream.at_end()) stream.end(rank.tail());
        }
    }
}

void Attempt::wait_for_events(Time now) {
    std::vector<pollfd> waits{{signals_.descriptor(), POLLIN, 0}};
    std::vector<std::pair<RankStream*, Tail*>> readers;
    for (const auto& rank : ranks_) {
        for (RankStream& stream : rank->streams()) {
            if (stream.read_end() < 0) continue;
            waits.push_back({stream.read_end(), POLLIN, 0});
            readers.emplace_back(&stream, &rank->tail());
        }
    }
    console_.add_to(waits);
    if (const std::optional<AwakeClock::duration> time = time_to_next_action(now)) {
        const AwakeClock::Waiting waiting;
        const auto rest = std::chrono::ceil<std::chrono::milliseconds>(*time);
        const auto limit = std::clamp(rest, std::chrono::milliseconds(0), AwakeClock::look_interval);
        poll(waits.data(), waits.size(), static_cast<int>(limit.count()));
    } else {
        poll(waits.data(), waits.size(), -1);
    }
    for (std::size_t i = 0; i < readers.size(); ++i) {
        if (waits[i + 1].revents != 0) readers[i].first->read(*readers[i].second);
    }
}

/// The time until the next action that no event triggers, or nullopt if there is none.
std::optional<AwakeClock::duration> Attempt::time_to_next_action(Time now) const {
    std::optional<AwakeClock::duration> least;
    const auto consider = [&](AwakeClock::duration time) { least = least ? std::min(*least, time) : time; };
    if (const std::optional<Time> deadline = schedule_.deadline()) consider(*deadline - now);
    for (const auto& rank : ranks_) {
        for (const RankStream& stream : rank->streams()) {
            if (const auto flush_at = stream.flush_at()) consider(*flush_at - Clock::now());
        }
        if (!rank->ended && rank->stop_signal != 0)
            consider(AwakeClock::look_interval);  // how long it has been stopped
    }
    if (members_) consider(std::chrono::milliseconds(20));     // no event reports what ranks have written
    if (all_ended()) consider(std::chrono::milliseconds(20));  // no event reports a new orphan
    return least;
}

bool Attempt::all_ended() const {
    return std::ranges::all_of(ranks_, [](const auto& rank) { return rank->ended; });
}

bool Attempt::all_read() {
    return std::ranges::all_of(
        ranks_, [](const auto& rank) { return rank->streams()[0].at_end() && rank->streams()[1].at_end(); });
}

std::vector<pid_t> Attempt::known_processes() const {
    std::vector<pid_t> known{guard_.process()};
    for (const auto& rank : ranks_) {
        if (!rank->ended) known.push_back(rank->process());
    }
    return known;
}

}  // namespace run
