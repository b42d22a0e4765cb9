#pragma once

#include "dptk/control/launch/detail/rendezvous.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>

#include "dptk/control/health/rank_status.hpp"
#include "dptk/control/net/host.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/control/process/debug.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::string PeerInfo::to_line() const {
    return text(rank, ' ', world_size, ' ', version, ' ', host, ' ', label);
}

DPTK_INLINE std::optional<PeerInfo> PeerInfo::parse(std::string_view line) {
    PeerInfo peer;
    if (!parse_number(next_word(line), peer.rank)) return std::nullopt;
    if (!parse_number(next_word(line), peer.world_size)) return std::nullopt;
    peer.version = next_word(line);
    peer.host = next_word(line);
    peer.label = line;
    return peer;
}

DPTK_INLINE std::string PeerInfo::name() const {
    return text("rank ", rank, " (", label, ")");
}

/// The processes as they come, and what does not fit.
class RendezvousLeader {
  public:
    explicit RendezvousLeader(PeerInfo leader)
        : leader_(std::move(leader)), ranks_(static_cast<std::size_t>(leader_.world_size)) {}

    /// Returns the problem with it, or nothing.
    [[nodiscard]] std::optional<std::string> add(const PeerInfo& peer) {
        if (peer.version != leader_.version) {
            return text("the processes use different versions of dptk: ", leader_.name(), " has ",
                        leader_.version, ", ", peer.name(), " has ", peer.version);
        }
        if (peer.world_size != leader_.world_size) {
            return text("the processes disagree about the world size: ", leader_.name(), " was told ",
                        leader_.world_size, ", ", peer.name(), " was told ", peer.world_size);
        }
        std::optional<PeerInfo>& place = ranks_[static_cast<std::size_t>(peer.rank)];
        if (place) {
            return text("two processes have rank ", peer.rank, ": ", place->label, " and ", peer.label);
        }
        place = peer;
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
    PeerInfo leader_;
    std::vector<std::optional<PeerInfo>> ranks_;
};

/// What rank 0 tells all: "ok" and the table, or a kind of error and its text.
struct RendezvousResult {
    std::string kind;
    std::string text;

    [[nodiscard]] std::string to_text() const { return kind + "\n" + text; }

    [[nodiscard]] static RendezvousResult parse(std::string_view value) {
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
        store_.set(text("peer/", number), self_.to_line());
        const bool leads =
            options_.rank == 0 &&
            store_.compare_and_set("leader", "", std::to_string(number)) == std::to_string(number);
        const RendezvousResult verdict = leads ? lead() : follow();
        if (verdict.kind != "ok") throw_problem(verdict);
        return peers_from(verdict.text);
    }

  private:
    using clock = std::chrono::steady_clock;

    /// For how long rank 0 stays, at most and at least, for the others to come and read why it fails.
    static constexpr std::chrono::milliseconds farewell{2000};
    static constexpr std::chrono::milliseconds shortest_shutdown{500};
    static constexpr std::chrono::milliseconds first_report{5000};
    static constexpr std::chrono::milliseconds report_interval{30000};

    [[nodiscard]] RendezvousResult lead() {
        RendezvousResult verdict = call_roll();
        store_.set("verdict", verdict.to_text());
        wait_for_readers(verdict);
        return verdict;
    }

    [[nodiscard]] RendezvousResult call_roll() {
        RendezvousLeader roll(self_);
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
            const std::optional<PeerInfo> peer = PeerInfo::parse(*line);
            if (!peer || peer->rank < 0 || peer->world_size < 1 || peer->rank >= peer->world_size) {
                return {"mismatch",
                        text("something that is no rank of this job came to ", options_.where, ": ", *line)};
            }
            if (const std::optional<std::string> problem = roll.add(*peer)) return {"mismatch", *problem};
        }
        return {"ok", roll.table()};
    }

    [[nodiscard]] std::optional<std::string> next_arrival(std::int64_t number, const Deadline& deadline) {
        try {
            return store_.get(text("peer/", number), std::min<std::chrono::milliseconds>(
                                                         deadline.left(), std::chrono::milliseconds(500)));
        } catch (const TimeoutError&) {
            return std::nullopt;
        }
    }

    /// The process that serves the store must stay until the others know why they fail. Of two that are rank
    /// 0, either may serve it, and either lead.
    void wait_for_readers(const RendezvousResult& verdict) {
        if (verdict.kind == "ok") return;
        const Deadline deadline(farewell);
        const Deadline shortest(shortest_shutdown);
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

    [[nodiscard]] RendezvousResult follow() {
        try {
            // Rank 0 gives up at the timeout, and then says who is missing.
            RendezvousResult verdict =
                RendezvousResult::parse(store_.get("verdict", options_.timeout + farewell));
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

    [[noreturn]] void throw_problem(const RendezvousResult& verdict) const {
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
            const std::optional<PeerInfo> peer = PeerInfo::parse(table.substr(0, end));
            table.remove_prefix(end == std::string_view::npos ? table.size() : end + 1);
            if (!peer) break;
            if (peer->rank == options_.rank && *peer != self_) {
                throw MismatchError(
                    text("two processes have rank ", options_.rank, ": ", peer->label, " and ", self_.label));
            }
            peers.labels.push_back(peer->label);
            peers.hosts.push_back(peer->host);
        }
        return peers;
    }

    Store& store_;
    RendezvousOptions options_;
    PeerInfo self_;
};

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE Peers rendezvous(Store& store, RendezvousOptions options) {
    return Rendezvous(store, std::move(options)).meet();
}

}  // namespace DPTK_NAMESPACE::detail
