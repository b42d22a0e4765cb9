// Model checking of the shared-memory barrier: explores all interleavings of the ranks' steps on a machine
// with a store buffer per CPU (x86 TSO), and checks that no rank reads another generation's records, no
// work is lost or done twice, and no rank sleeps forever.
#include <doctest/doctest.h>
#include <dptk/comm/shm/barrier.hpp>
#include <dptk/core/detail/fnv1a.hpp>

#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace {

/// Runs ranks as fibers of one thread. Before each step that another rank could observe, the search chooses
/// which rank runs next, or which rank's oldest store becomes visible in memory.
class Explorer {
  public:
    explicit Explorer(std::span<const std::byte> memory) : memory_(memory) {}

    /// Chooses one of `ways` next steps; returns nothing if this state has been explored already.
    using Choose = std::function<std::optional<std::size_t>(std::uint64_t state, std::size_t ways)>;

    /// Runs the bodies until all have ended, or `choose` returns nothing. Throws if no rank can run
    /// (deadlock).
    void run(const std::vector<std::function<void()>>& bodies, const Choose& choose) {
        current = this;
        ranks_.resize(bodies.size());
        for (std::size_t r = 0; r < bodies.size(); ++r) {
            Rank& rank = ranks_[r];
            rank.body = bodies[r];
            rank.stores.clear();
            rank.asleep_on = nullptr;
            rank.ended = false;
            rank.history = r + 1;
            getcontext(&rank.context);
            rank.context.uc_stack = {.ss_sp = rank.stack.data(), .ss_flags = 0, .ss_size = rank.stack.size()};
            rank.context.uc_link = nullptr;
            makecontext(&rank.context, &Explorer::enter, 0);
        }
        while (true) {
            struct Way {
                std::size_t rank;
                bool stores;
            };
            std::vector<Way> ways;
            bool all_ended = true;
            for (std::size_t r = 0; r < ranks_.size(); ++r) {
                all_ended = all_ended && ranks_[r].ended;
                if (!ranks_[r].ended && ranks_[r].asleep_on == nullptr) ways.push_back({r, false});
                if (!ranks_[r].stores.empty()) ways.push_back({r, true});
            }
            if (all_ended) return;
            if (ways.empty()) throw std::runtime_error("all ranks sleep");
            std::size_t way = 0;
            if (ways.size() > 1) {
                const std::optional<std::size_t> chosen = choose(state(), ways.size());
                if (!chosen) return;
                way = *chosen;
            }
            if (ways[way].stores) {
                commit(ranks_[ways[way].rank]);
            } else {
                running_ = ways[way].rank;
                swapcontext(&main_, &ranks_[running_].context);
            }
        }
    }

    [[nodiscard]] static Explorer& here() { return *current; }

    // The running rank calls the functions below.

    void step() {
        remember(1);
        swapcontext(&self().context, &main_);
    }

    [[nodiscard]] std::uint64_t load(const std::uint64_t& word) {
        step();
        std::uint64_t value = word;
        for (const auto& [to, stored] : self().stores) {
            if (to == &word) value = stored;
        }
        return remember(value);
    }

    void store(std::uint64_t& word, std::uint64_t value, bool waits_for_memory) {
        step();
        self().stores.emplace_back(&word, value);
        if (waits_for_memory) drain();
    }

    /// Executes an atomic read-modify-write.
    template <class Change>
    std::uint64_t change(std::uint64_t& word, Change&& change) {
        step();
        drain();
        const std::uint64_t before = word;
        word = change(before);
        return remember(before);
    }

    void sleep_while(const std::uint64_t& word, std::uint64_t value) {
        step();
        drain();
        if (remember(word) != value) return;
        self().asleep_on = &word;
        step();
    }

    void wake_all(const std::uint64_t& word) {
        step();
        drain();
        for (Rank& rank : ranks_) {
            if (rank.asleep_on == &word) rank.asleep_on = nullptr;
        }
    }

  private:
    struct Rank {
        ucontext_t context{};
        std::vector<char> stack = std::vector<char>(std::size_t{64} << 10);
        std::function<void()> body;
        std::deque<std::pair<std::uint64_t*, std::uint64_t>> stores;
        const std::uint64_t* asleep_on = nullptr;
        bool ended = false;
        /// Hash of all values that the rank has read. Together with memory, it determines the rank's next
        /// steps.
        std::uint64_t history = 0;
    };

    static void enter() {
        Explorer& explorer = here();
        explorer.self().body();
        explorer.drain();
        explorer.self().ended = true;
        explorer.step();
    }

    [[nodiscard]] Rank& self() { return ranks_[running_]; }

    std::uint64_t remember(std::uint64_t value) {
        self().history = mix(self().history, value);
        return value;
    }

    void drain() {
        while (!self().stores.empty()) commit(self());
    }

    static void commit(Rank& rank) {
        *rank.stores.front().first = rank.stores.front().second;
        rank.stores.pop_front();
    }

    [[nodiscard]] static std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
        hash = (hash ^ value) * 0x9e37'79b9'7f4a'7c15U;
        return hash ^ (hash >> 29);
    }

    [[nodiscard]] std::uint64_t state() const {
        std::uint64_t hash =
            dptk::detail::fnv1a({reinterpret_cast<const char*>(memory_.data()), memory_.size()});
        for (const Rank& rank : ranks_) {
            hash = mix(mix(hash, rank.history), rank.stores.size());
            hash = mix(hash, rank.ended ? 1 : rank.asleep_on != nullptr ? 2 : 3);
        }
        return hash;
    }

    static inline Explorer* current = nullptr;
    std::span<const std::byte> memory_;
    std::vector<Rank> ranks_;
    std::size_t running_ = 0;
    ucontext_t main_{};
};

/// The machine on which the protocols run. It has x86's memory model: a store may become visible after
/// later loads.
struct ModelMachine {
    template <class T>
    class Cell {
      public:
        T load(std::memory_order) const { return static_cast<T>(Explorer::here().load(value)); }
        void store(T to, std::memory_order order) {
            Explorer::here().store(value, to, order == std::memory_order_seq_cst);
        }
        T fetch_add(T by, std::memory_order) {
            return change([&](T old) { return static_cast<T>(old + by); });
        }
        T fetch_sub(T by, std::memory_order) {
            return change([&](T old) { return static_cast<T>(old - by); });
        }
        bool compare_exchange_strong(T& seen, T to, std::memory_order) {
            const T found = change([&](T old) { return old == seen ? to : old; });
            return std::exchange(seen, found) == found;
        }

        std::uint64_t value = 0;

      private:
        template <class Change>
        T change(Change&& next) {
            return static_cast<T>(
                Explorer::here().change(value, [&](std::uint64_t old) { return next(static_cast<T>(old)); }));
        }
    };
    using Word = Cell<std::uint32_t>;
    using LongWord = Cell<std::uint64_t>;

    static void sleep_while(const Word& word, std::uint64_t value, std::chrono::nanoseconds) {
        Explorer::here().sleep_while(word.value, value);
    }
    static void wake_all(const Word& word) { Explorer::here().wake_all(word.value); }
    static void pause() {}
    static bool yield() { return true; }
};

// Sanitizers do not support switching between fibers.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool fibers_work = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool fibers_work = false;
#else
constexpr bool fibers_work = true;
#endif
#else
constexpr bool fibers_work = true;
#endif

using Barrier = dptk::detail::ShmBarrier<ModelMachine, std::uint32_t>;

/// Memory that the ranks share.
template <std::size_t ranks>
struct Shared {
    Barrier::Event event;
    Barrier::Work work;
    std::array<Barrier::Slot, 2 * ranks> slots;
    /// How often each piece of work was done, by generation.
    std::array<std::array<int, 4>, 4> done{};
};

/// The result of one search.
struct Finding {
    std::size_t states = 0;
    std::size_t ends = 0;
    std::string problem;
};

/// Searches all interleavings in which the ranks call enter_barrier `barriers` times, and share `pieces`
/// pieces of work after each, if any.
template <std::size_t ranks>
Finding search(std::uint32_t barriers, std::uint32_t pieces, dptk::detail::SpinPolicy spin_policy) {
    Finding finding;
    std::unordered_set<std::uint64_t> seen;
    struct Turn {
        std::size_t way;
        std::size_t ways;
    };
    std::vector<Turn> path;
    Shared<ranks> shared;
    Explorer explorer(std::as_bytes(std::span(&shared, 1)));
    do {
        shared = {};
        shared.work.taken.value = shared.work.done.value = 3;  // counts left over from an earlier generation
        bool cut = false;
        std::vector<std::function<void()>> bodies;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            bodies.emplace_back([&, rank] {
                Barrier barrier(shared.event, shared.work, shared.slots, static_cast<int>(rank));
                const auto idle = [] { return false; };
                for (std::uint32_t k = 1; k <= barriers; ++k) {
                    const auto record_in = [k](std::size_t of) {
                        return 100 * k + static_cast<std::uint32_t>(of);
                    };
                    barrier.enter_barrier(record_in(rank), idle, spin_policy);
                    for (std::size_t other = 0; other < ranks; ++other) {
                        if (pieces == 0) explorer.step();
                        if (barrier.record_of(static_cast<int>(other)) != record_in(other))
                            finding.problem = "a record belongs to another generation";
                    }
                    if (pieces == 0) continue;
                    auto& done = shared.done[k - 1];
                    barrier.share(
                        pieces, [&](std::uint32_t piece) { ++done[piece]; }, idle, spin_policy);
                    for (std::uint32_t piece = 0; piece < pieces; ++piece) {
                        if (done[piece] != 1) finding.problem = "a piece of work was not done exactly once";
                    }
                }
            });
        }
        std::size_t depth = 0;
        const auto choose = [&](std::uint64_t state, std::size_t ways) -> std::optional<std::size_t> {
            if (depth == path.size()) {
                if (!seen.insert(state).second) {
                    cut = true;
                    return std::nullopt;
                }
                path.push_back({0, ways});
            }
            return path[depth++].way;
        };
        try {
            explorer.run(bodies, choose);
        } catch (const std::runtime_error& error) {
            finding.problem = error.what();
        }
        if (!cut) ++finding.ends;
        if (!finding.problem.empty()) break;
        while (!path.empty() && ++path.back().way == path.back().ways) path.pop_back();
    } while (!path.empty());
    finding.states = seen.size();
    return finding;
}

void check(const Finding& finding) {
    CHECK(finding.problem == "");
    CHECK(finding.ends > 0);
    MESSAGE(finding.states, " states");
}

}  // namespace

TEST_CASE("ranks enter the barrier in every order of their steps" * doctest::skip(!fibers_work)) {
    check(search<2>(3, 0, {.spins = 0, .yields = 0}));
    check(search<2>(2, 0, {.spins = 1, .yields = 1}));
    check(search<3>(1, 0, {.spins = 0, .yields = 0}));
}

TEST_CASE("ranks share work in every order of their steps" * doctest::skip(!fibers_work)) {
    check(search<2>(1, 1, {.spins = 0, .yields = 0}));
    check(search<2>(1, 2, {.spins = 0, .yields = 0}));
}
