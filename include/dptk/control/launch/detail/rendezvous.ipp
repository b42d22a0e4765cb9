#pragma once

#include "dptk/control/launch/detail/rendezvous.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>

#include "dptk/control/process/deadline.hpp"
#include "dptk/control/process/debug.hpp"
#include "dptk/control/net/host.hpp"
#include "dptk/control/health/rank_status.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/log.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::string Arrival::to_line() const {
    return text(rank, ' ', world_size, ' ', version, ' ', host, ' ', label);
}

DPTK_INLINE std::optional<Arrival> Arrival::parse(std::string_view line) {
    Arrival arrival;
    if (!parse_number(next_word(line), arrival.rank)) return std::nullopt;
    if (!parse_number(next_word(line), arrival.world_size)) return std::nullopt;
    arrival.version = next_word(line);
    arrival.host = next_word(line);
    arrival.label = line;
    return arrival;
}

DPTK_INLINE std::string Arrival::name() const {
    return text("rank ", rank, " (", label, ")");
}

/// The processes as they come, and what does not fit.
class RollCall {
  public:
    explicit RollCall(Arrival leader)
        : leader_(std::move(leader)), ranks_(static_cast<std::size_t>(leader_.world_size)) {}

    /// Returns the problem with it, or nothing.
    [[nodiscard]] std::optional<std::string> add(const Arrival& arrival) {
        if (arrival.version != leader_.version) {
            return text("the processes use different versions of dptk: ", leader_.name(), " has ",
                        leader_.version, ", ", arrival.name(), " has ", arrival.version);
        }
        if (arrival.world_size != leader_.world_size) {
            return text("the processes disagree about the world size: ", leader_.name(), " was told ",
                        leader_.world_size, ", ", arrival.name(), " was told ", arrival.world_size);
        }
        std::optional<Arrival>& place = ranks_[static_cast<std::size_t>(arrival.rank)];
        if (place) {
            return text("two processes have rank ", arrival.rank, ": ", place->label, " and ", arrival.label);
        }
        place = arrival;
        return std::nullopt;
    }

    [[nodiscard]] bool complete() const {
        return std::ranges::all_of(ranks_, [](const auto& place) { return place.has_value(); });
    }

    /// "ranks 1, 3 of 4", at most 16 of them by number.
    [[nodiscard]] std::string missing() const {
        constexpr int listed = 16;
        std::string out;
        int count = 0;
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            if (ranks_[rank] || ++count > listed) continue;
            out += text(out.empty() ? "" : ", ", rank);
        }
        if (count > listed) out += text(" and ", count - listed, " more");
        return text(count == 1 ? "rank " : "ranks ", out, " of ", ranks_.size());
    }

    [[nodiscard]] std::string table() const {
        std::string out;
        for (const auto& place : ranks_) out += place->to_line() + "\n";
        return out;
    }

  private:
    Arrival leader_;
    std::vector<std::optional<Arrival>> ranks_;
};

/// What rank 0 tells all: "ok" and the table, or a kind of error and its text.
struct RollCallResult {
    std::string kind;
    std::string text;

    [[nodiscard]] std::string to_text() const { return kind + "\n" + text; }

    [[nodiscard]] static RollCallResult parse(std::string_view value) {
        const std::size_t end = value.find('\n');
        return {std::string(value.substr(0, end)),
                std::string(end == std::string_view::npos ? "" : value.substr(end + 1))};
    }
};

class Rendezvous {
  public:
    Rendezvous(Store& store, RendezvousOptions options)
        : store_(store),
          options_(std::move(options)),
          self_{options_.rank, options_.world_size, job_version(), host_word(), process_label()} {}

    [[nodiscard]] Peers meet() {
        const std::int64_t number = store_.add("arrivals", 1);
        store_.set(text("arrival/", number), self_.to_line());
        const bool leads =
            options_.rank == 0 &&
            store_.compare_and_set("leader", "", std::to_string(number)) == std::to_string(number);
        const RollCallResult verdict = leads ? lead() : follow();
        if (verdict.kind != "ok") throw_problem(verdict);
        return peers_from(verdict.text);
    }

  private:
    using clock = std::chrono::steady_clock;

    /// For how long rank 0 stays, at most and at least, for the others to come and read why it fails.
    static constexpr std::chrono::milliseconds farewell{2000};
    static constexpr std::chrono::milliseconds shortest_farewell{500};
    static constexpr std::chrono::milliseconds first_report{5000};
    static constexpr std::chrono::milliseconds report_interval{30000};

    [[nodiscard]] RollCallResult lead() {
        RollCallResult verdict = call_roll();
        store_.set("verdict", verdict.to_text());
        wait_for_readers(verdict);
        return verdict;
    }

    [[nodiscard]] RollCallResult call_roll() {
        RollCall roll(self_);
        const Deadline deadline(options_.timeout);
        clock::time_point next_report = clock::now() + first_report;
        for (std::int64_t number = 1; !roll.complete();) {
            if (clock::now() >= next_report) {
                log(LogLevel::info, 0,
                    text("waits at ", options_.where, " for ", roll.missing(), ", for at most ",
                         duration_text(options_.timeout)));
                next_report += report_interval;
            }
            const std::optional<std::string> line = next_arrival(number, deadline);
            if (!line && deadline.passed()) {
                return {"timeout", text("waited ", duration_text(options_.timeout), " at ", options_.where,
                                        " for ", roll.missing(), ", which did not come")};
            }
            if (!line) continue;
            ++number;
            const std::optional<Arrival> arrival = Arrival::parse(*line);
            if (!arrival || arrival->rank < 0 || arrival->world_size < 1 ||
                arrival->rank >= arrival->world_size) {
                return {"mismatch",
                        text("something that is no rank of this job came to ", options_.where, ": ", *line)};
            }
            if (const std::optional<std::string> problem = roll.add(*arrival)) return {"mismatch", *problem};
        }
        return {"ok", roll.table()};
    }

    [[nodiscard]] std::optional<std::string> next_arrival(std::int64_t number, const Deadline& deadline) {
        try {
            return store_.get(text("arrival/", number), std::min<std::chrono::milliseconds>(
                                                            deadline.left(), std::chrono::milliseconds(500)));
        } catch (const TimeoutError&) {
            return std::nullopt;
        }
    }

    /// The process that serves the store must stay until the others know why they fail. Of two that are rank
    /// 0, either may serve it, and either lead.
    void wait_for_readers(const RollCallResult& verdict) {
        if (verdict.kind == "ok") return;
        const Deadline deadline(farewell);
        const Deadline shortest(shortest_farewell);
        const auto count = [&](std::string_view key) {
            std::int64_t number = 0;
            static_cast<void>(parse_number(store_.find(key).value_or("0"), number));
            return number;
        };
        const auto all_have_read = [&] {
            return count("readers") + 1 >= std::max<std::int64_t>(count("arrivals"), self_.world_size);
        };
        try {
            while (!deadline.passed() && (!shortest.passed() || !all_have_read())) {
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
            }
        } catch (const Error&) {
            // The store has ended, and this process did not serve it.
        }
    }

    [[nodiscard]] RollCallResult follow() {
        try {
            // Rank 0 gives up at the timeout, and then says who is missing.
            RollCallResult verdict =
                RollCallResult::parse(store_.get("verdict", options_.timeout + farewell));
            try {
                store_.add("readers", 1);
            } catch (const Error&) {
                // Rank 0 goes as soon as it sees this, perhaps before it answers.
            }
            if (options_.rank == 0) wait_for_readers(verdict);
            return verdict;
        } catch (const TimeoutError&) {
            return {"timeout", text("waited ", duration_text(options_.timeout), " at ", options_.where,
                                    " for rank 0, which did not come")};
        }
    }

    [[noreturn]] void throw_problem(const RollCallResult& verdict) const {
        const std::string message = text("rank ", options_.rank, ": ", verdict.text);
        if (verdict.kind == "timeout") throw_marked(TimeoutError(message));
        throw_marked(MismatchError(message));
    }

    /// All ranks throw it.
    template <class E>
    [[noreturn]] static void throw_marked(E error) {
        error.mark_agreed();
        throw error;
    }

    [[nodiscard]] Peers peers_from(std::string_view table) const {
        Peers peers;
        while (!table.empty()) {
            const std::size_t end = table.find('\n');
            const std::optional<Arrival> arrival = Arrival::parse(table.substr(0, end));
            table.remove_prefix(end == std::string_view::npos ? table.size() : end + 1);
            if (!arrival) break;
            if (arrival->rank == options_.rank && *arrival != self_) {
                throw MismatchError(text("two processes have rank ", options_.rank, ": ", arrival->label,
                                         " and ", self_.label));
            }
            peers.labels.push_back(arrival->label);
            peers.hosts.push_back(arrival->host);
        }
        return peers;
    }

    Store& store_;
    RendezvousOptions options_;
    Arrival self_;
};

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE Peers rendezvous(Store& store, RendezvousOptions options) {
    return detail::Rendezvous(store, std::move(options)).meet();
}

}  // namespace DPTK_NAMESPACE
