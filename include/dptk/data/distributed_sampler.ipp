#pragma once

#include "dptk/data/distributed_sampler.hpp"

#include <atomic>
#include <limits>

#include "dptk/core/detail/parse.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/log.hpp"
#include "dptk/data/random_permutation.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns a text such as "shuffle=1 seed=7 drop_last=0 padding=none order=torch".
[[nodiscard]] DPTK_INLINE std::string options_text(const DistributedSamplerOptions& options) {
    return text("shuffle=", options.shuffle ? 1 : 0, " seed=", options.seed,
                " drop_last=", options.drop_last ? 1 : 0,
                " padding=", options.padding == Padding::none ? "none" : "repeat",
                " order=", options.order == Order::computed ? "computed" : "torch");
}

/// Reads one word "name=value" of a state, and removes it from the line.
class StateWords {
  public:
    explicit StateWords(std::string_view line) : line_(line), rest_(line) {}

    [[nodiscard]] std::string_view word(std::string_view name) {
        const std::string_view word = next_word(rest_);
        if (word.size() <= name.size() || !word.starts_with(name) || word[name.size()] != '=') fail(name);
        return word.substr(name.size() + 1);
    }

    template <class Number>
    [[nodiscard]] Number number(std::string_view name) {
        Number value{};
        if (!parse_number(word(name), value)) fail(name);
        return value;
    }

    /// Returns whether the word is the second of two choices.
    [[nodiscard]] bool choice(std::string_view name, std::string_view first, std::string_view second) {
        const std::string_view found = word(name);
        if (found != first && found != second) fail(name);
        return found == second;
    }

    void check_end() const {
        if (!rest_.empty()) fail("nothing more");
    }

  private:
    [[noreturn]] void fail(std::string_view expected) const {
        throw FormatError(
            text("expected the state of a DistributedSampler with ", expected, ", found \"", line_, '"'));
    }

    std::string_view line_;
    std::string_view rest_;
};

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE std::string SamplerState::to_text() const {
    return detail::text("dataset_size=", dataset_size, ' ', detail::options_text(options), " epoch=", epoch,
                        " consumed=", consumed);
}

DPTK_INLINE SamplerState SamplerState::from_text(std::string_view line) {
    detail::StateWords words(line);
    SamplerState state;
    state.dataset_size = words.number<std::size_t>("dataset_size");
    state.options.shuffle = words.choice("shuffle", "0", "1");
    state.options.seed = words.number<std::uint64_t>("seed");
    state.options.drop_last = words.choice("drop_last", "0", "1");
    state.options.padding = words.choice("padding", "repeat", "none") ? Padding::none : Padding::repeat;
    state.options.order = words.choice("order", "torch", "computed") ? Order::computed : Order::torch;
    state.epoch = words.number<std::int64_t>("epoch");
    state.consumed = words.number<std::size_t>("consumed");
    words.check_end();
    return state;
}

DPTK_INLINE DistributedSampler::DistributedSampler(std::size_t dataset_size, std::size_t num_replicas,
                                                   std::size_t rank, DistributedSamplerOptions options)
    : dataset_size_(dataset_size), num_replicas_(num_replicas), rank_(rank), options_(options) {
    check_arguments();
    begin_epoch(0);
}

DPTK_INLINE void DistributedSampler::set_epoch(std::int64_t epoch) {
    epoch_is_set_ = true;
    if (epoch == epoch_) return;
    epoch_ = epoch;
    begin_epoch(0);
}

DPTK_INLINE SamplerState DistributedSampler::state(std::size_t consumed) const {
    const std::size_t most = remaining() / num_replicas_ + 1;
    return {.dataset_size = dataset_size_,
            .options = options_,
            .epoch = epoch_,
            .consumed = first_ + std::min(std::min(consumed, most) * num_replicas_, remaining())};
}

DPTK_INLINE void DistributedSampler::restore(const SamplerState& state) {
    const auto fail = [](std::string_view what, const auto& own, const auto& other) {
        throw ArgumentError(detail::text("DistributedSampler: the state is that of another sampler: it has ",
                                         what, " ", other, ", this sampler has ", own));
    };
    if (state.dataset_size != dataset_size_) fail("dataset_size", dataset_size_, state.dataset_size);
    if (state.options.seed != options_.seed) fail("seed", options_.seed, state.options.seed);
    if (state.options != options_)
        fail("options", detail::options_text(options_), detail::options_text(state.options));
    if (state.consumed > dataset_size_)
        throw ArgumentError(detail::text("DistributedSampler: the state has ", state.consumed,
                                         " consumed samples, but the dataset has only ", dataset_size_));
    epoch_ = state.epoch;
    epoch_is_set_ = true;
    begin_epoch(state.consumed);
}

DPTK_INLINE void DistributedSampler::set_replicas(std::size_t num_replicas, std::size_t rank) {
    num_replicas_ = num_replicas;
    rank_ = rank;
    check_arguments();
}

DPTK_INLINE void DistributedSampler::note_pass() const noexcept {
    const std::uint32_t before = std::atomic_ref(passes_).fetch_add(1, std::memory_order_relaxed);
    if (before == 0 || epoch_is_set_ || !options_.shuffle) return;
    static std::atomic<bool> is_said = false;
    if (is_said.exchange(true)) return;
    log(LogLevel::warning, static_cast<int>(rank_),
        "DistributedSampler: set_epoch() was not called before the second pass, so each pass has the same "
        "order: call sampler.set_epoch(epoch) before each epoch");
}

DPTK_INLINE std::size_t DistributedSampler::largest_share() const noexcept {
    const bool is_even = remaining() % num_replicas_ == 0;
    return remaining() / num_replicas_ + (is_even || options_.drop_last ? 0 : 1);
}

DPTK_INLINE std::size_t DistributedSampler::smallest_share() const noexcept {
    return options_.padding == Padding::none ? remaining() / num_replicas_ : largest_share();
}

DPTK_INLINE std::size_t DistributedSampler::share(std::size_t rank) const {
    check_rank(rank);
    return rank < remaining() % num_replicas_ ? largest_share() : smallest_share();
}

DPTK_INLINE void DistributedSampler::check_arguments() const {
    constexpr auto most_replicas = std::numeric_limits<std::ptrdiff_t>::max();
    // The messages show values as signed: a huge value is a negative int that the caller passed.
    if (num_replicas_ == 0 || num_replicas_ > static_cast<std::size_t>(most_replicas)) {
        throw ArgumentError(detail::text("DistributedSampler: num_replicas must be in [1, ", most_replicas,
                                         "], found ", static_cast<std::ptrdiff_t>(num_replicas_)));
    }
    check_rank(rank_);
    if (options_.drop_last && options_.padding == Padding::none) {
        throw ArgumentError(
            "DistributedSampler: drop_last leaves samples out and Padding::none counts each once; "
            "expected at most one of these options, found both");
    }
}

DPTK_INLINE void DistributedSampler::check_rank(std::size_t rank) const {
    if (rank < num_replicas_) return;
    throw ArgumentError(detail::text("DistributedSampler: rank must be in [0, ", num_replicas_ - 1,
                                     "], found ", static_cast<std::ptrdiff_t>(rank)));
}

DPTK_INLINE void DistributedSampler::begin_epoch(std::size_t first) {
    first_ = first;
    size_ = share(rank_);
    if (!options_.shuffle) return;
    const std::uint64_t seed = options_.seed + static_cast<std::uint64_t>(epoch_);
    if (options_.order == Order::computed) {
        computed_ = ComputedPermutation(dataset_size_, seed);
    } else if (dataset_size_ <= std::numeric_limits<std::uint32_t>::max()) {
        drawn_ = own_part(random_permutation<std::uint32_t>(dataset_size_, seed));
    } else {
        drawn_large_ = own_part(random_permutation<std::size_t>(dataset_size_, seed));
    }
}

}  // namespace DPTK_NAMESPACE
