/// ShardCopies: the parts of a sharded training that a rank of an elastic job keeps, so that the others can
/// continue when any rank is lost: its own part and that of another rank, at the end of the last step.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/ddp/detail/sharded_parameters.hpp"
#include "dptk/optim/optimizer.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns the state of a piece, if that of its parameter is `whole`.
template <std::floating_point T>
[[nodiscard]] OptimizerState<T> state_of_piece(const OptimizerState<T>& whole, const ShardPiece& piece) {
    OptimizerState<T> state{whole.steps, {}};
    for (const std::vector<T>& array : whole.arrays) {
        const auto begin = array.begin() + static_cast<std::ptrdiff_t>(piece.first);
        state.arrays.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(piece.count));
    }
    return state;
}

/// Identifies a step, and with it the values and states at its end.
struct ShardVersion {
    std::int64_t steps = 0;       // how many steps have been completed
    std::int64_t generation = 0;  // in which the last one was completed; 0 before this rank has joined
    friend bool operator==(const ShardVersion&, const ShardVersion&) = default;
};

/// Values are of type T.
template <std::floating_point T>
class ShardCopies {
  public:
    using Piece = ShardPiece;

    /// A copy of several pieces.
    class Copy {
      public:
        /// A piece, and what its elements consist of: its values, and the arrays of its optimizer's state.
        struct Entry {
            Piece piece;
            std::int64_t steps = 0;  // of the optimizer
            std::size_t arrays = 0;
            std::size_t begin = 0;  // the position of its first element
        };

        void add(const Piece& piece, std::span<const T> values, const OptimizerState<T>& state) {
            const Entry& entry = add(piece, state.steps, state.arrays.size());
            detail::copy(values, array(entry, 0).begin());
            for (std::size_t i = 0; i < entry.arrays; ++i)
                detail::copy(state.arrays[i], array(entry, i + 1).begin());
        }

        /// Adds a piece whose elements are unspecified. The reference is valid until the next call.
        const Entry& add(const Piece& piece, std::int64_t steps, std::size_t arrays) {
            entries_.push_back({piece, steps, arrays, elements_.size()});
            elements_.resize(elements_.size() + (arrays + 1) * piece.count);
            return entries_.back();
        }

        /// Removes all pieces. The memory is used again.
        void clear() {
            entries_.clear();
            elements_.clear();
        }

        [[nodiscard]] const std::vector<Entry>& entries() const noexcept { return entries_; }
        [[nodiscard]] std::span<T> elements() noexcept { return elements_; }

        /// Returns the values of a piece for i = 0, and array i - 1 of its state otherwise.
        [[nodiscard]] std::span<T> array(const Entry& entry, std::size_t i) {
            return elements().subspan(entry.begin + i * entry.piece.count, entry.piece.count);
        }

        [[nodiscard]] OptimizerState<T> state(const Entry& entry) {
            OptimizerState<T> state{entry.steps, {}};
            for (std::size_t i = 0; i < entry.arrays; ++i) {
                const std::span<const T> elements = array(entry, i + 1);
                state.arrays.emplace_back(elements.begin(), elements.end());
            }
            return state;
        }

        ShardVersion version;

      private:
        std::vector<Entry> entries_;
        std::vector<T> elements_;
    };

    /// Some elements of a parameter that a rank has copies of.
    struct Source {
        std::size_t parameter = 0;
        std::size_t first = 0;
        std::size_t end = 0;
        std::int64_t steps = 0;
        std::size_t arrays = 0;
        int rank = 0;
    };

    /// Returns the rank that keeps a copy of the pieces of rank `rank`. If the ranks of several hosts follow
    /// each other, it is on another host.
    [[nodiscard]] static int keeper_of(int rank, int size) { return (rank + shift(size)) % size; }

    /// Returns the rank whose pieces rank `rank` keeps a copy of.
    [[nodiscard]] static int kept_by(int rank, int size) { return (rank + size - shift(size)) % size; }

    /// Returns the version of the last step that commit() has been called for.
    [[nodiscard]] ShardVersion version() const noexcept { return version_; }

    /// Returns an empty copy for this rank's pieces.
    [[nodiscard]] Copy make() {
        Copy copy;
        if (!unused_.empty()) {
            copy = std::move(unused_.back());
            unused_.pop_back();
            copy.clear();
        }
        return copy;
    }

    /// Replaces everything with the state of a rank that has not joined yet, which has all pieces.
    void begin_with(Copy all) {
        all.version = version_ = {};
        copies_.clear();
        copies_.push_back(std::move(all));
    }

    /// Adds this rank's pieces at the end of the next step, and sends them to the rank that keeps them.
    /// `pieces_of_other` are those of kept_by(). Collective, blocks.
    void add_step(ProcessGroup& group, Copy own, std::span<const Piece> pieces_of_other) {
        drop_if([&](const Copy& copy) { return copy.version != version_; });
        loaded_.clear();
        own.version = next_version();
        copies_.push_back(std::move(own));
        if (group.size() == 1) return;
        Copy other = make();
        receive_copy(group, copies_.back(), other, pieces_of_other);
        other.version = next_version();
        copies_.push_back(std::move(other));
    }

    /// Replaces the optimizer's state of a parameter, of which all ranks have `whole`, at the next commit().
    void load(std::size_t parameter, const OptimizerState<T>& whole) {
        for (const Copy& copy : copies_) {
            for (const auto& [piece, steps, arrays, begin] : copy.entries())
                if (piece.parameter == parameter)
                    loaded_[{parameter, piece.first}] = state_of_piece(whole, piece);
        }
    }

    /// Notes that a step is complete: its copies replace those of the step before it. Returns false, and does
    /// nothing, if there was no step, and no state was loaded. Does not communicate.
    bool commit() {
        if (!loaded_.empty()) copy_loaded();
        const ShardVersion next = next_version();
        if (detail::none_of(copies_, [&](const Copy& copy) { return copy.version == next; })) return false;
        version_ = next;
        drop_if([&](const Copy& copy) { return copy.version != version_; });
        return true;
    }

    /// Returns which ranks have the elements of the parameters at the end of step `version`, of which rank
    /// `root` was the last to complete one: for each parameter with these numbers of elements, sources that
    /// follow each other. A parameter whose elements are not all there has none. Collective, blocks.
    [[nodiscard]] std::vector<std::vector<Source>> find_sources(ProcessGroup& group, int root,
                                                                ShardVersion version,
                                                                std::span<const std::size_t> counts) const {
        std::vector<Source> own;
        // Ranks that have not joined yet may have begun with other states.
        if (version.generation > 0 || group.rank() == root) {
            for (const Copy& copy : copies_) {
                if (copy.version != version) continue;
                for (const auto& [piece, steps, arrays, begin] : copy.entries())
                    own.push_back({piece.parameter, piece.first, piece.first + piece.count, steps, arrays,
                                   group.rank()});
            }
        }
        std::vector<std::vector<Source>> of_parameter(counts.size());
        for (const std::vector<Source>& of_rank : group.all_gather_object(own))
            for (const Source& source : of_rank) of_parameter.at(source.parameter).push_back(source);
        for (std::size_t i = 0; i < counts.size(); ++i) of_parameter[i] = cover(of_parameter[i], counts[i]);
        return of_parameter;
    }

    /// Sends the elements of each source, and keeps those that belong to the pieces of `own` and `other`,
    /// whose values and states are those of step `version`. Calls receive(source, values) for the values of
    /// each source. Collective, blocks.
    template <class Receive>
    void distribute(ProcessGroup& group, ShardVersion version, std::int64_t generation,
                    const std::vector<std::vector<Source>>& sources, std::span<const Piece> own,
                    std::span<const Piece> other, Receive&& receive) {
        std::array<Copy, 2> received{make(), make()};
        const std::array<std::span<const Piece>, 2> wanted{own, other};
        for (std::size_t k = 0; k < 2; ++k) {
            for (const Piece& piece : wanted[k]) {
                const Source& source = sources[piece.parameter].front();
                received[k].add(piece, source.steps, source.arrays);
            }
        }
        std::vector<T> elements;
        for (const std::vector<Source>& of_parameter : sources) {
            for (const Source& source : of_parameter) {
                elements.resize(source.end - source.first);
                for (std::size_t array = 0; array <= source.arrays; ++array) {
                    if (source.rank == group.rank()) read(version, source, array, elements);
                    group.broadcast(elements, source.rank);
                    if (array == 0) receive(source, std::span<const T>(elements));
                    for (Copy& copy : received) write(copy, source, array, elements);
                }
            }
        }
        loaded_.clear();
        generation_ = generation;
        received_version_ = version.generation > 0 ? version : ShardVersion{version.steps, generation};
        for (Copy& copy : received) {
            copy.version = received_version_;
            copies_.push_back(std::move(copy));
        }
    }

    /// Returns the copy of this rank's pieces that distribute() has received.
    [[nodiscard]] Copy& received() { return copies_[copies_.size() - 2]; }

    /// Notes that all ranks have received the state that distribute() has sent. Other copies are no longer
    /// needed.
    void accept() {
        version_ = received_version_;
        Copy other = std::move(copies_.back());
        copies_.pop_back();
        Copy own = std::move(copies_.back());
        copies_.pop_back();
        drop_if([](const Copy&) { return true; });
        copies_.push_back(std::move(own));
        copies_.push_back(std::move(other));
    }

  private:
    [[nodiscard]] static int shift(int size) { return std::max(1, size / 2); }

    [[nodiscard]] ShardVersion next_version() const { return {version_.steps + 1, generation_}; }

    template <class Predicate>
    void drop_if(const Predicate& predicate) {
        const auto dropped = std::stable_partition(copies_.begin(), copies_.end(),
                                                   [&](const Copy& copy) { return !predicate(copy); });
        for (auto copy = dropped; copy != copies_.end() && unused_.size() < 2; ++copy)
            unused_.push_back(std::move(*copy));
        copies_.erase(dropped, copies_.end());
    }

    /// Sends `own` to its keeper, and receives `other`.
    static void receive_copy(ProcessGroup& group, Copy& own, Copy& other, std::span<const Piece> pieces) {
        const int to = keeper_of(group.rank(), group.size()), from = kept_by(group.rank(), group.size());
        std::vector<std::int64_t> sent, numbers(2 * pieces.size());  // steps and arrays of each piece
        for (const auto& entry : own.entries()) {
            sent.push_back(entry.steps);
            sent.push_back(static_cast<std::int64_t>(entry.arrays));
        }
        Work numbers_sent = group.send_async(std::span(sent), to);
        Work elements_sent = group.send_async(own.elements(), to);
        group.recv(std::span(numbers), from);
        for (std::size_t i = 0; i < pieces.size(); ++i)
            other.add(pieces[i], numbers[2 * i], static_cast<std::size_t>(numbers[2 * i + 1]));
        group.recv(other.elements(), from);
        numbers_sent.wait();
        elements_sent.wait();
    }

    /// Changes the copies of the next step, or of a step that is added, to the states that were loaded.
    void copy_loaded() {
        const ShardVersion next = next_version();
        const bool has_next = detail::any_of(copies_, [&](const Copy& copy) { return copy.version == next; });
        const std::size_t kept = copies_.size();
        for (std::size_t i = 0; i < kept; ++i) {
            if (copies_[i].version != (has_next ? next : version_)) continue;
            Copy changed = make();
            changed.version = next;
            for (const auto& entry : copies_[i].entries()) {
                const auto loaded = loaded_.find({entry.piece.parameter, entry.piece.first});
                changed.add(entry.piece, copies_[i].array(entry, 0),
                            loaded == loaded_.end() ? copies_[i].state(entry) : loaded->second);
            }
            if (has_next) {
                copies_[i] = std::move(changed);
            } else {
                copies_.push_back(std::move(changed));
            }
        }
        loaded_.clear();
    }

    /// Returns those of these sources that together have all elements, or none.
    [[nodiscard]] static std::vector<Source> cover(const std::vector<Source>& sources, std::size_t count) {
        std::vector<Source> chosen;
        for (std::size_t position = 0; position < count;) {
            Source best;
            for (const Source& source : sources)
                if (source.first <= position && source.end > std::max(position, best.end)) best = source;
            if (best.end == 0) return {};
            best.first = position;
            position = best.end;
            chosen.push_back(best);
        }
        return chosen;
    }

    /// Reads an array's elements of a source from the copies of this rank.
    void read(ShardVersion version, const Source& source, std::size_t array, std::span<T> elements) {
        for (Copy& copy : copies_) {
            if (copy.version != version) continue;
            for (const auto& entry : copy.entries()) {
                if (entry.piece.parameter != source.parameter || entry.piece.first > source.first ||
                    entry.piece.first + entry.piece.count < source.end)
                    continue;
                detail::copy(
                    copy.array(entry, array).subspan(source.first - entry.piece.first, elements.size()),
                    elements.begin());
                return;
            }
        }
    }

    /// Writes an array's elements of a source to the pieces of a copy.
    static void write(Copy& copy, const Source& source, std::size_t array, std::span<const T> elements) {
        for (const auto& entry : copy.entries()) {
            const Piece& piece = entry.piece;
            const std::size_t first = std::max(piece.first, source.first);
            const std::size_t end = std::min(piece.first + piece.count, source.end);
            if (piece.parameter != source.parameter || first >= end) continue;
            detail::copy(elements.subspan(first - source.first, end - first),
                         copy.array(entry, array).begin() + static_cast<std::ptrdiff_t>(first - piece.first));
        }
    }

    std::vector<Copy> copies_;
    std::vector<Copy> unused_;  // their memory is used for the next ones
    ShardVersion version_;
    ShardVersion received_version_;
    std::int64_t generation_ = 0;  // the current one
    std::map<std::pair<std::size_t, std::size_t>, OptimizerState<T>>
        loaded_;  // by parameter and first element
};

}  // namespace DPTK_NAMESPACE::detail
