/// ShardCopies: the parts of a sharded training that a rank of an elastic job keeps, so that the others can
/// continue when any rank is lost: its own part of the values and of the optimizer's state, and that of
/// another rank, at the end of the last step.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <span>
#include <string>
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

/// Identifies a step, and with it the state of the optimizer at its end.
struct ShardVersion {
    std::int64_t steps = 0;       // how many steps have been completed
    std::int64_t generation = 0;  // in which the last change was made; 0 before this rank has joined
    std::int64_t loads = 0;       // how often a state was loaded
    friend bool operator==(const ShardVersion&, const ShardVersion&) = default;
};

/// Returns, by rank, the rank that keeps a copy of its pieces; each rank keeps those of one other rank.
/// `hosts` are the ranks' hosts. The copy is on another host, unless more than half of the ranks are on one.
[[nodiscard]] inline std::vector<int> keepers_of(const std::vector<std::string>& hosts) {
    const std::size_t size = hosts.size();
    std::vector<std::size_t> by_host(size);
    std::iota(by_host.begin(), by_host.end(), std::size_t{0});
    std::stable_sort(by_host.begin(), by_host.end(),
                     [&](std::size_t a, std::size_t b) { return hosts[a] < hosts[b]; });
    std::size_t most = 0;  // ranks on one host
    for (const std::string& host : hosts)
        most = std::max(most, static_cast<std::size_t>(std::count(hosts.begin(), hosts.end(), host)));
    const std::size_t shift = most < size ? most : std::max<std::size_t>(1, size / 2);
    std::vector<int> keepers(size);
    for (std::size_t i = 0; i < size; ++i)
        keepers[by_host[i]] = static_cast<int>(by_host[(i + shift) % size]);
    return keepers;
}

/// Values are of type T.
template <std::floating_point T>
class ShardCopies {
  public:
    /// A copy of several pieces: the optimizer's state after a step, and once that is complete, the values.
    class Copy {
      public:
        struct Entry {
            ShardPiece piece;
            std::int64_t steps = 0;  // the optimizer's
            std::size_t arrays = 0;  // in the optimizer's state
            std::size_t first_value = 0;
            std::size_t first_element = 0;  // that of the first array
        };

        void add(const ShardPiece& piece, const OptimizerState<T>& state) {
            const Entry& entry = add(piece, state.steps, state.arrays.size());
            for (std::size_t i = 0; i < entry.arrays; ++i)
                detail::copy(state.arrays[i], array(entry, i).begin());
        }

        /// Adds a piece whose state is unspecified. The reference is valid until the next call.
        const Entry& add(const ShardPiece& piece, std::int64_t steps, std::size_t arrays) {
            entries_.push_back({piece, steps, arrays, values_.size(), elements_.size()});
            values_.resize(values_.size() + piece.count);
            elements_.resize(elements_.size() + arrays * piece.count);
            return entries_.back();
        }

        /// Removes all pieces. Their memory is used again.
        void clear() {
            has_values = false;
            entries_.clear();
            values_.clear();
            elements_.clear();
        }

        [[nodiscard]] const std::vector<Entry>& entries() const noexcept { return entries_; }

        /// The elements of all arrays.
        [[nodiscard]] std::span<T> elements() noexcept { return elements_; }

        [[nodiscard]] std::span<T> values(const Entry& entry) {
            return std::span<T>(values_).subspan(entry.first_value, entry.piece.count);
        }

        [[nodiscard]] std::span<T> array(const Entry& entry, std::size_t i) {
            return elements().subspan(entry.first_element + i * entry.piece.count, entry.piece.count);
        }

        [[nodiscard]] OptimizerState<T> state(const Entry& entry) {
            OptimizerState<T> state{entry.steps, {}};
            for (std::size_t i = 0; i < entry.arrays; ++i) {
                const std::span<const T> elements = array(entry, i);
                state.arrays.emplace_back(elements.begin(), elements.end());
            }
            return state;
        }

        ShardVersion version;
        bool has_values = false;  // whether the values were read

      private:
        std::vector<Entry> entries_;
        std::vector<T> values_;
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
        bool has_values = false;
    };

    /// Sources that follow each other, for each parameter: none if some of its elements are lost.
    using Sources = std::vector<std::vector<Source>>;

    struct AllSources {
        Sources states;
        Sources values;
    };

    /// Returns the version of the last step that commit() has been called for.
    [[nodiscard]] ShardVersion version() const noexcept { return version_; }

    /// Returns an empty copy.
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
    template <class ValuesOf>
    void begin_with(Copy all, const ValuesOf& values_of) {
        all.version = version_ = {};
        forget_loaded();
        copies_.clear();
        copies_.push_back(std::move(all));
        read_values(copies_.back(), values_of);
    }

    /// Adds the state of this rank's pieces after a step, and sends it to the rank `keeper`. Receives that of
    /// the pieces of rank `kept`. Collective, blocks.
    void add_step(ProcessGroup& group, Copy own, int keeper, int kept,
                  std::span<const ShardPiece> pieces_of_kept) {
        drop_if([&](const Copy& copy) { return copy.version != version_; });
        forget_loaded();
        next_ = {version_.steps + 1, generation_, version_.loads};
        own.version = next_;
        copies_.push_back(std::move(own));
        if (group.size() == 1) return;
        Copy other = make();
        receive_copy(group, copies_.back(), keeper, other, kept, pieces_of_kept);
        other.version = next_;
        copies_.push_back(std::move(other));
    }

    /// Replaces the optimizer's state of a parameter, of which all ranks have `whole`, at the next commit().
    void load(std::size_t parameter, const OptimizerState<T>& whole) {
        has_loaded_ = true;  // also if this rank has no piece of it
        for (const Copy& copy : copies_) {
            for (const auto& entry : copy.entries())
                if (entry.piece.parameter == parameter)
                    loaded_[{parameter, entry.piece.first}] = state_of_piece(whole, entry.piece);
        }
    }

    /// Notes that a step is complete: its copies replace those of the step before it, if it has added any.
    /// `values_of` returns the values of a piece. Does not communicate.
    template <class ValuesOf>
    void commit(const ValuesOf& values_of) {
        if (has_loaded_) {
            change_to_loaded();  // other ranks may not get there: the copies before that may be needed
        } else if (next_ != version_) {
            drop_if([&](const Copy& copy) { return copy.version != next_; });
        }
        version_ = next_;
        for (Copy& copy : copies_)
            if (copy.version == version_) read_values(copy, values_of);
    }

    /// Returns which ranks have the elements of the parameters in this version, which is that of rank `root`.
    /// `has_values` is whether the values of this rank's copies may be used. `counts` are the parameters'
    /// numbers of elements. Collective, blocks.
    [[nodiscard]] AllSources find_sources(ProcessGroup& group, int root, ShardVersion version,
                                          bool has_values, std::span<const std::size_t> counts) const {
        std::vector<Source> own;
        // Ranks that have not joined yet may have begun with other states.
        if (version.generation > 0 || group.rank() == root) {
            for (const Copy& copy : copies_) {
                if (copy.version != version) continue;
                for (const auto& entry : copy.entries()) {
                    const ShardPiece& piece = entry.piece;
                    own.push_back({piece.parameter, piece.first, piece.first + piece.count, entry.steps,
                                   entry.arrays, group.rank(), has_values && copy.has_values});
                }
            }
        }
        std::vector<std::vector<Source>> states(counts.size()), values(counts.size());
        for (const std::vector<Source>& of_rank : group.all_gather_object(own)) {
            for (const Source& source : of_rank) {
                states.at(source.parameter).push_back(source);
                if (source.has_values) values.at(source.parameter).push_back(source);
            }
        }
        for (std::size_t i = 0; i < counts.size(); ++i) {
            states[i] = cover(states[i], counts[i]);
            values[i] = cover(values[i], counts[i]);
        }
        return {std::move(states), std::move(values)};
    }

    /// Returns whether no elements are lost.
    [[nodiscard]] static bool are_complete(const Sources& sources, std::span<const std::size_t> counts) {
        for (std::size_t i = 0; i < counts.size(); ++i)
            if (counts[i] > 0 && sources[i].empty()) return false;
        return true;
    }

    /// Sends the values of each source, and calls receive(source, values) for them. Collective, blocks.
    template <class Receive>
    void send_values(ProcessGroup& group, ShardVersion version, const Sources& sources, Receive&& receive) {
        std::vector<T> values;
        for (const std::vector<Source>& of_parameter : sources) {
            for (const Source& source : of_parameter) {
                send(group, version, source, values,
                     [](Copy& copy, const auto& entry) { return copy.values(entry); });
                receive(source, std::span<const T>(values));
            }
        }
    }

    /// Sends the states of the sources, and adds copies of the pieces `own` and `other`. `values_of` returns
    /// the values of a piece. `generation` is the current one. Collective, blocks.
    template <class ValuesOf>
    void send_states(ProcessGroup& group, ShardVersion version, std::int64_t generation,
                     const Sources& sources, std::span<const ShardPiece> own,
                     std::span<const ShardPiece> other, const ValuesOf& values_of) {
        std::array<Copy, 2> received{make(), make()};
        const std::array<std::span<const ShardPiece>, 2> wanted{own, other};
        for (std::size_t k = 0; k < 2; ++k) {
            for (const ShardPiece& piece : wanted[k]) {
                const Source& source = sources[piece.parameter].front();
                received[k].add(piece, source.steps, source.arrays);
            }
            read_values(received[k], values_of);
        }
        std::vector<T> elements;
        for (const std::vector<Source>& of_parameter : sources) {
            for (const Source& source : of_parameter) {
                for (std::size_t i = 0; i < source.arrays; ++i) {
                    send(group, version, source, elements,
                         [i](Copy& copy, const auto& entry) { return copy.array(entry, i); });
                    for (Copy& copy : received) write(copy, source, i, elements);
                }
            }
        }
        forget_loaded();
        generation_ = generation;
        received_version_ = version;
        if (version.generation == 0) received_version_.generation = generation;
        for (Copy& copy : received) {
            copy.version = received_version_;
            copies_.push_back(std::move(copy));
        }
    }

    /// Returns the copy of this rank's pieces that send_states() has added.
    [[nodiscard]] Copy& received() { return copies_[copies_.size() - 2]; }

    /// Notes that all ranks have what send_states() has sent. Earlier copies are no longer needed.
    void accept() {
        next_ = version_ = received_version_;
        Copy other = std::move(copies_.back());
        copies_.pop_back();
        Copy own = std::move(copies_.back());
        copies_.pop_back();
        drop_if([](const Copy&) { return true; });
        copies_.push_back(std::move(own));
        copies_.push_back(std::move(other));
    }

  private:
    void forget_loaded() {
        loaded_.clear();
        has_loaded_ = false;
    }

    template <class Predicate>
    void drop_if(const Predicate& predicate) {
        const auto dropped = std::stable_partition(copies_.begin(), copies_.end(),
                                                   [&](const Copy& copy) { return !predicate(copy); });
        for (auto copy = dropped; copy != copies_.end() && unused_.size() < 2; ++copy)
            unused_.push_back(std::move(*copy));
        copies_.erase(dropped, copies_.end());
    }

    template <class ValuesOf>
    static void read_values(Copy& copy, const ValuesOf& values_of) {
        for (const auto& entry : copy.entries())
            detail::copy(values_of(entry.piece), copy.values(entry).begin());
        copy.has_values = true;
    }

    /// Sends `own` to its keeper, and receives `other`.
    static void receive_copy(ProcessGroup& group, Copy& own, int keeper, Copy& other, int kept,
                             std::span<const ShardPiece> pieces) {
        std::vector<std::int64_t> sent, numbers(2 * pieces.size());  // steps and arrays of each piece
        for (const auto& entry : own.entries()) {
            sent.push_back(entry.steps);
            sent.push_back(static_cast<std::int64_t>(entry.arrays));
        }
        Work numbers_sent = group.send_async(std::span(sent), keeper);
        Work elements_sent = group.send_async(own.elements(), keeper);
        group.recv(std::span(numbers), kept);
        for (std::size_t i = 0; i < pieces.size(); ++i)
            other.add(pieces[i], numbers[2 * i], static_cast<std::size_t>(numbers[2 * i + 1]));
        group.recv(other.elements(), kept);
        numbers_sent.wait();
        elements_sent.wait();
    }

    /// Makes copies with the states that were loaded, and a version of their own: other ranks may have
    /// completed the same step without loading them.
    void change_to_loaded() {
        const ShardVersion last = next_;
        next_ = {last.steps, generation_, last.loads + 1};
        const std::size_t kept = copies_.size();
        for (std::size_t i = 0; i < kept; ++i) {
            if (copies_[i].version != last) continue;
            Copy changed = make();
            changed.version = next_;
            for (const auto& entry : copies_[i].entries()) {
                const auto loaded = loaded_.find({entry.piece.parameter, entry.piece.first});
                changed.add(entry.piece, loaded == loaded_.end() ? copies_[i].state(entry) : loaded->second);
            }
            copies_.push_back(std::move(changed));
        }
        forget_loaded();
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

    /// Sends what `part_of` returns for the source's elements to all ranks, which receive it in `elements`.
    /// Collective, blocks.
    template <class PartOf>
    void send(ProcessGroup& group, ShardVersion version, const Source& source, std::vector<T>& elements,
              const PartOf& part_of) {
        elements.resize(source.end - source.first);
        for (Copy& copy : copies_) {
            if (copy.version != version || source.rank != group.rank()) continue;
            for (const auto& entry : copy.entries()) {
                const ShardPiece& piece = entry.piece;
                if (piece.parameter == source.parameter && piece.first <= source.first &&
                    piece.first + piece.count >= source.end)
                    detail::copy(part_of(copy, entry).subspan(source.first - piece.first, elements.size()),
                                 elements.begin());
            }
        }
        group.broadcast(elements, source.rank);
    }

    /// Writes the elements of a source's array `i` to the pieces of a copy.
    static void write(Copy& copy, const Source& source, std::size_t i, std::span<const T> elements) {
        for (const auto& entry : copy.entries()) {
            const ShardPiece& piece = entry.piece;
            const std::size_t first = std::max(piece.first, source.first);
            const std::size_t end = std::min(piece.first + piece.count, source.end);
            if (piece.parameter != source.parameter || first >= end) continue;
            detail::copy(elements.subspan(first - source.first, end - first),
                         copy.array(entry, i).begin() + static_cast<std::ptrdiff_t>(first - piece.first));
        }
    }

    std::vector<Copy> copies_;
    std::vector<Copy> unused_;       // their memory is used for the next ones
    ShardVersion version_;           // the last one for which commit() was called
    ShardVersion next_;              // the one after it, if its state was added; otherwise the same
    ShardVersion received_version_;  // that which send_states() has added
    std::int64_t generation_ = 0;    // the current one
    bool has_loaded_ = false;        // since the last step
    std::map<std::pair<std::size_t, std::size_t>, OptimizerState<T>>
        loaded_;  // by parameter and first element
};

}  // namespace DPTK_NAMESPACE::detail
