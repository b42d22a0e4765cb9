#include "attempt.hpp"

#include <dptk/control/health/failure_report.hpp>
#include <dptk/control/process/child_process.hpp>
#include <dptk/core/detail/text.hpp>

#include <sys/wait.h>

#include <algorithm>
#include <csignal>

#include "orphans.hpp"

namespace run {

using dptk::detail::StopSchedule;
using dptk::detail::text;

namespace {

/// After a signal, a reader that does not read holds dptk-run up for no longer than this.
constexpr std::chrono::seconds patience_with_reader{1};

}  // namespace

Attempt::Attempt(const Job& job, const Meeting& meeting, const Signals& signals, Guard& guard,
                 Console& console)
    : job_(job), meeting_(meeting), signals_(signals), guard_(guard), console_(console) {}

AttemptResult Attempt::run() {
    try {
        start_ranks();
    } catch (...) {
        schedule_.kill(start_);
        supervise();
        throw;
    }
    supervise();
    for (const auto& rank : ranks_) result_.tails.push_back(rank->tail());
    return std::move(result_);
}

void Attempt::start_ranks() {
    for (int local_rank = 0; local_rank < job_.local_size; ++local_rank) {
        ranks_.push_back(std::make_unique<Rank>(job_, meeting_, local_rank, signals_, console_, turns_));
        guard_.watch(ranks_.back()->process());
    }
}

void Attempt::supervise() {
    while (true) {
        const Time now = Clock::now();
        take_signals(now);
        reap(now);
        act(schedule_.due(now));
        if (all_ended() && !gone_) look_after_orphans(now);
        pass_on_output(now);
        watch_console(now);
        if (gone_ && (all_read() || (result_.signal != 0 && now > *gone_ + patience_with_reader))) return;
        wait_for_events(now);
    }
}

void Attempt::take_signals(Time now) {
    while (const std::optional<int> signal = signals_.next()) take_signal(*signal, now);
}

void Attempt::take_signal(int signal, Time now) {
    if (signal == SIGCHLD) return;
    if (!asks_to_end(signal)) {
        for (const auto& rank : ranks_) {
            if (!rank->ended) kill(rank->process(), signal);
        }
        return;
    }
    if (schedule_.asked()) {
        if (signal == SIGINT) schedule_.kill(now);
    } else {
        console_.say(text(dptk::detail::signal_name(signal), ": ending the ranks"));
        stop_signal_ = signal;
        schedule_.stop(now);
    }
    if (result_.signal == 0) result_.signal = signal;
}

void Attempt::watch_console(Time now) {
    if (!console_.closed() || result_.signal != 0) return;
    console_.say("nobody reads the output any more: ending the ranks");
    result_.signal = SIGPIPE;
    schedule_.stop(now);
}

void Attempt::reap(Time now) {
    int status = 0;
    pid_t process = 0;
    while ((process = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
        const auto rank = std::ranges::find_if(
            ranks_, [&](const auto& one) { return !one->ended && one->process() == process; });
        if (rank != ranks_.end()) note_change(**rank, status, now);
    }
}

void Attempt::note_change(Rank& rank, int wait_status, Time now) {
    if (WIFSTOPPED(wait_status) || WIFCONTINUED(wait_status)) {
        rank.stop_signal = WIFSTOPPED(wait_status) ? WSTOPSIG(wait_status) : 0;
        return;
    }
    rank.ended = true;
    guard_.forget(rank.process());
    result_.ends.push_back({.rank = rank.number(),
                            .process = rank.process(),
                            .end = dptk::detail::ChildEnd(wait_status),
                            .after = now - start_,
                            .note = dptk::detail::read_failure_report(rank.note_path().c_str()),
                            .asked_to_end = schedule_.asked()});
    if (result_.ends.back().end.well()) return;
    schedule_.failure(now);
    if (result_.signal == 0 && !schedule_.asked()) result_.failed = true;
}

void Attempt::act(StopSchedule::Action action) {
    if (action == StopSchedule::Action::none) return;
    const bool ask = action == StopSchedule::Action::ask;
    for (const auto& rank : ranks_) {
        if (rank->ended) continue;
        if (ask && rank->stop_signal != 0) result_.stopped.push_back({rank->number(), rank->stop_signal});
        if (ask) {
            dptk::detail::ask_to_end(rank->process(), stop_signal_);
        } else {
            dptk::detail::kill_rank(rank->process());
        }
    }
    end_orphans(ask ? stop_signal_ : SIGKILL);
}

void Attempt::end_orphans(int signal) {
    for (const pid_t orphan : find_orphans(known_processes())) {
        kill(orphan, signal);
        kill(orphan, SIGCONT);
    }
}

/// When all ranks have ended, what they have left behind is ended as they would have been.
void Attempt::look_after_orphans(Time now) {
    if (find_orphans(known_processes()).empty()) {
        gone_ = now;
    } else if (schedule_.killed()) {
        end_orphans(SIGKILL);  // again and again: a dead one leaves its own children behind
    } else {
        schedule_.stop(now);
    }
}

void Attempt::pass_on_output(Time now) {
    for (const auto& rank : ranks_) {
        for (RankStream& stream : rank->streams()) stream.flush_if_due(now, rank->tail());
    }
    if (gone_) read_rest();
    console_.flush();
}

/// Whatever is still in the pipes is the last.
void Attempt::read_rest() {
    for (const auto& rank : ranks_) {
        for (RankStream& stream : rank->streams()) {
            while (stream.read_end() >= 0) {
                if (!stream.read(rank->tail()) && !stream.at_end()) stream.end(rank->tail());
            }
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
    poll(waits.data(), waits.size(), timeout(now));
    for (std::size_t i = 0; i < readers.size(); ++i) {
        if (waits[i + 1].revents != 0) readers[i].first->read(*readers[i].second);
    }
}

/// In milliseconds, until something is due without an event.
int Attempt::timeout(Time now) const {
    std::optional<Time> next = schedule_.deadline();
    const auto consider = [&](std::optional<Time> time) {
        if (time && (!next || *time < *next)) next = time;
    };
    for (const auto& rank : ranks_) {
        for (const RankStream& stream : rank->streams()) consider(stream.flush_at());
    }
    if (all_ended()) consider(now + std::chrono::milliseconds(20));  // orphans come without an event
    if (!next) return -1;
    const auto rest = std::chrono::ceil<std::chrono::milliseconds>(*next - now).count();
    return static_cast<int>(std::clamp<decltype(rest)>(rest, 0, 60'000));
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
