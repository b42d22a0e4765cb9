#pragma once

#include "dptk/control/launch/detail/rendezvous.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "dptk/control/net/host.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/control/process/debug.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/error_access.hpp"
#include "dptk/core/detail/parse.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::string PeerInfo::to_line() const {
    const auto word = [](const std::string& address) { return address.empty() ? "-" : address; };
    return text(rank, ' ', world_size, ' ', version, ' ', host, ' ', word(connection.own), ' ',
                word(connection.server), ' ', label);
}

DPTK_INLINE std::optional<PeerInfo> PeerInfo::parse(std::string_view line) {
    PeerInfo peer;
    if (!parse_number(next_word(line), peer.rank)) return std::nullopt;
    if (!parse_number(next_word(line), peer.world_size)) return std::nullopt;
    peer.version = next_word(line);
    peer.host = next_word(line);
    for (std::string* address : {&peer.connection.own, &peer.connection.server}) {
        *address = next_word(line);
        if (*address == "-") address->clear();
    }
    peer.label = line;
    return peer;
}

DPTK_INLINE std::string PeerInfo::name() const {
    return text("rank ", rank, " (", label, ")");
}

/// Collects and checks the peer infos on rank 0.
class RendezvousLeader {
  public:
    explicit RendezvousLeader(PeerInfo leader)
        : leader_(std::move(leader)), ranks_(static_cast<std::size_t>(leader_.world_size)) {}

    /// Adds a process. Returns an error text if the process does not match the others, or nullopt.
    [[nodiscard]] std::optional<std::string> add(const PeerInfo& peer) {
        if (peer.version != leader_.version) {
            return text("the processes use different versions of dptk: ", leader_.name(), " has ",
                        leader_.version, ", ", peer.name(), " has ", peer.version);
        }
        if (peer.world_size != leader_.world_size) {
            return text("the processes disagree about the world size: ", leader_.name(), " expects ",
                        leader_.world_size, ", ", peer.name(), " expects ", peer.world_size);
        }
        std::optional<PeerInfo>& slot = ranks_[static_cast<std::size_t>(peer.rank)];
        if (slot) {
            return text("two processes have rank ", peer.rank, ": ", slot->label, " and ", peer.label);
        }
        slot = peer;
        return std::nullopt;
    }

    [[nodiscard]] bool complete() const {
        return detail::all_of(ranks_, [](const auto& slot) { return slot.has_value(); });
    }

    /// Returns the missing ranks: "ranks 1, 3 of 4". Lists at most 16 ranks by number.
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
        for (const auto& slot : ranks_) out += slot->to_line() + "\n";
        return out;
    }

  private:
    PeerInfo leader_;
    std::vector<std::optional<PeerInfo>> ranks_;
};

/// The result that rank 0 publishes: "ok" and the table of peer infos, or the kind of an error and its
/// text.
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
          self_{options_.rank, options_.world_size,         job_version(),
                host_word(),   outward(store.connection()), process_label()} {}

    [[nodiscard]] Peers run() {
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
    using clock = Deadline::Clock;

    /// How long rank 0 waits, at most and at least, for the other ranks to read why the rendezvous has
    /// failed.
    static constexpr std::chrono::milliseconds longest_linger{2000};
    static constexpr std::chrono::milliseconds shortest_linger{500};
    static constexpr std::chrono::milliseconds first_report{5000};
    static constexpr std::chrono::milliseconds report_interval{30000};

    [[nodiscard]] RendezvousResult lead() {
        RendezvousResult verdict = collect_peers();
        const std::string own = verdict.to_text();
        const std::string first = store_.compare_and_set(rendezvous_result_key, "", own);
        if (first != own) verdict = RendezvousResult::parse(first);
        wait_for_readers(verdict);
        return verdict;
    }

    [[nodiscard]] RendezvousResult collect_peers() {
        RendezvousLeader leader(self_);
        const Deadline deadline(options_.timeout);
        clock::time_point next_report = clock::now() + first_report;
        for (std::int64_t number = 1; !leader.complete();) {
            if (clock::now() >= next_report) {
                log(LogLevel::info, 0,
                    text("waiting at ", options_.where, " for ", leader.missing(), ", for at most ",
                         duration_text(options_.timeout)));
                next_report += report_interval;
            }
            if (const auto ended = store_.find(rendezvous_result_key)) return RendezvousResult::parse(*ended);
            const std::optional<std::string> line = next_peer(number, deadline);
            if (!line && deadline.passed()) {
                return {"timeout", text("waited ", duration_text(options_.timeout), " at ", options_.where,
                                        " for ", leader.missing(), ", which did not connect")};
            }
            if (!line) continue;
            ++number;
            const std::optional<PeerInfo> peer = PeerInfo::parse(*line);
            if (!peer || peer->rank < 0 || peer->world_size < 1 || peer->rank >= peer->world_size) {
                return {"mismatch",
                        text("expected the peer info of a rank at ", options_.where, ", got: ", *line)};
            }
            if (const std::optional<std::string> problem = leader.add(*peer)) return {"mismatch", *problem};
        }
        return {"ok", leader.table()};
    }

    [[nodiscard]] std::optional<std::string> next_peer(std::int64_t number, const Deadline& deadline) {
        try {
            return store_.get(text("peer/", number), std::min<std::chrono::milliseconds>(
                                                         deadline.left(), std::chrono::milliseconds(100)));
        } catch (const TimeoutError&) {
            return std::nullopt;
        }
    }

    /// Waits until the other ranks have read why the rendezvous has failed, since this process may serve
    /// the store. If two processes have rank 0, one may serve the store and the other may lead.
    void wait_for_readers(const RendezvousResult& verdict) {
        if (verdict.kind == "ok" || verdict.kind == "lost") return;
        const Deadline deadline(longest_linger);
        const Deadline shortest(shortest_linger);
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
                AwakeClock::sleep_for(std::chrono::milliseconds(5));
            }
        } catch (const Error&) {
            // Another process served the store and has ended.
        }
    }

    [[nodiscard]] RendezvousResult follow() {
        try {
            // Rank 0 stops waiting at the timeout, and then publishes which ranks are missing.
            RendezvousResult verdict =
                RendezvousResult::parse(store_.get(rendezvous_result_key, options_.timeout + longest_linger));
            try {
                store_.add("readers", 1);
            } catch (const Error&) {
                // Rank 0 may end as soon as it sees the count, before it replies.
            }
            if (options_.rank == 0) wait_for_readers(verdict);
            return verdict;
        } catch (const TimeoutError&) {
            return {"timeout", text("waited ", duration_text(options_.timeout), " at ", options_.where,
                                    " for rank 0, which did not connect")};
        }
    }

    [[noreturn]] void throw_problem(const RendezvousResult& verdict) const {
        const std::string message = text("rank ", options_.rank, ": ", verdict.text);
        if (verdict.kind == "lost") throw PeerLostError(message);
        if (verdict.kind == "timeout") throw_marked(TimeoutError(message));
        throw_marked(MismatchError(message));
    }

    /// Throws `error` as an agreed error, since all ranks throw it.
    template <class E>
    [[noreturn]] static void throw_marked(E error) {
        detail::ErrorAccess::mark_agreed(error);
        throw error;
    }

    [[nodiscard]] Peers peers_from(std::string_view table) const {
        Peers peers;
        std::string server;
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
            peers.addresses.push_back(peer->connection.own);
            if (server.empty()) server = peer->connection.server;
        }
        for (std::string& address : peers.addresses) {
            if (address.empty()) address = server;
        }
        return peers;
    }

    /// Returns the addresses without loopback addresses, at which other hosts reach nobody.
    [[nodiscard]] static StoreConnection outward(StoreConnection connection) {
        for (std::string* address : {&connection.own, &connection.server}) {
            if (is_loopback(*address)) address->clear();
        }
        return connection;
    }

    Store& store_;
    RendezvousOptions options_;
    PeerInfo self_;
};

DPTK_INLINE Peers rendezvous(Store& store, RendezvousOptions options) {
    return Rendezvous(store, std::move(options)).run();
}

DPTK_INLINE void end_rendezvous(Store& store, const std::string& cause) {
    store.compare_and_set(rendezvous_result_key, "", RendezvousResult{"lost", cause}.to_text());
}

}  // namespace DPTK_NAMESPACE::detail
