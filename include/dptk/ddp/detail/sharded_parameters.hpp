/// The parameters of a sharded training as one rank sees them: the pieces that are its own, where their
/// averages come from, and how the new values of all pieces get to all ranks.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/core/config.hpp"
#include "dptk/ddp/detail/gradient_reducer.hpp"

namespace DPTK_NAMESPACE::detail {

/// Values travel in memory with the layout of the buckets: in the buckets themselves, whose gradients are not
/// needed any more, or in memory of their own, where the program's values may live.
template <std::floating_point T>
class ShardedParameters {
  public:
    /// Elements of one parameter that are this rank's.
    struct Piece {
        std::size_t parameter = 0;
        std::size_t first = 0;
        std::size_t count = 0;
        std::size_t bucket = 0;
        std::size_t in_bucket = 0;  // where they begin there
    };

    struct Options {
        /// No piece has more elements.
        std::size_t largest_piece = std::numeric_limits<std::size_t>::max();
        /// Whether values have memory of their own.
        bool has_value_memory = false;
    };

    /// Collective. The reducer must outlive this.
    ShardedParameters(GradientReducer& reducer, const Options& options) : reducer_(reducer) {
        for (std::size_t b = 0; b < buckets().size(); ++b) {
            find_pieces(b, options.largest_piece);
            const Buffer gradients = buckets()[b].gradients();
            Transit transit{buckets()[b].memory(), gradients};
            if (options.has_value_memory) {
                transit.memory = group().channel().allocate(gradients.bytes());
                transit.values.data = transit.memory.get();
            }
            transit.peer_gradients = group().channel().peer_memory(gradients);
            transit.peer_values = group().channel().peer_memory(transit.values);
            transits_.push_back(std::move(transit));
        }
        if (!options.has_value_memory) return;
        for (std::size_t i = 0; i < reducer_.parameters().size(); ++i) {
            if (buckets().has(i))
                std::copy_n(value_of(i), reducer_.parameters()[i].count, value_memory(i).begin());
        }
    }

    [[nodiscard]] const std::vector<Piece>& pieces() const noexcept { return pieces_; }

    [[nodiscard]] std::span<T> value(const Piece& piece) const {
        return {value_of(piece.parameter) + piece.first, piece.count};
    }

    /// In this rank's part of the bucket.
    [[nodiscard]] std::span<T> gradient(const Piece& piece) const {
        return elements(buckets()[piece.bucket].gradients(), piece.in_bucket, piece.count);
    }

    /// Memory for the values of parameter `i`.
    [[nodiscard]] std::span<T> value_memory(std::size_t i) const {
        const auto [bucket, position] = buckets().place(i);
        return elements(transits_[bucket].values, buckets()[bucket].offset(position),
                        reducer_.parameters()[i].count);
    }

    /// Whether each rank reaches all ranks' gradients and values.
    [[nodiscard]] bool is_shared() const noexcept {
        return std::ranges::all_of(transits_, [](const Transit& transit) {
            return !transit.peer_gradients.empty() && !transit.peer_values.empty();
        });
    }

    // ---- where it is shared: each rank does so with its pieces, between two barriers

    /// gradient(piece) becomes the average, or the sum, of all ranks' gradients there.
    void reduce(const Piece& piece, ReduceOp op) {
        const std::vector<void*>& peers = transits_[piece.bucket].peer_gradients;
        sources_.clear();
        for (void* const peer : peers) sources_.push_back(static_cast<const T*>(peer) + piece.in_bucket);
        void* const own = gradient(piece).data();
        const Buffer like{own, piece.count, dtype_of<T>, {}};
        reduce_together({sources_, {&own, 1}, piece.count, static_cast<double>(peers.size())}, like,
                        like.dtype, op);
    }

    /// Writes the piece's new values to all ranks.
    void spread(const Piece& piece) const {
        const std::span<const T> values = value(piece);
        for (void* const peer : transits_[piece.bucket].peer_values) {
            T* const there = static_cast<T*>(peer) + piece.in_bucket;
            if (there != values.data()) std::ranges::copy(values, there);
        }
    }

    // ---- where it is not

    /// The averages, or sums, of each bucket, in parts. Collective, blocks.
    void reduce_all(ReduceOp op) {
        for (std::size_t b = 0; b < buckets().size(); ++b) {
            Collective call = buckets()[b].reduce_scatter(op, group().rank(), group().size());
            call.bucket = static_cast<int>(b);
            group().channel().run(call);
        }
    }

    /// Sends the pieces' new values to all ranks. Collective, blocks.
    void gather_values() {
        for (const Piece& piece : pieces_) {
            const std::span<T> there = elements(transits_[piece.bucket].values, piece.in_bucket, piece.count);
            if (there.data() != value(piece).data()) std::ranges::copy(value(piece), there.begin());
        }
        const bool in_background = !group().channel().competes_with_compute();
        std::vector<Work> works(transits_.size());
        for (std::size_t b = 0; b < transits_.size(); ++b) {
            const Transit& transit = transits_[b];
            const std::size_t part = transit.values.count / static_cast<std::size_t>(group().size());
            const Collective call{
                .verb = Verb::all_gather,
                .input = transit.values.slice(static_cast<std::size_t>(group().rank()) * part, part),
                .output = transit.values,
                .bucket = static_cast<int>(b)};
            if (in_background) {
                works[b] = group().channel().start(call, transit.memory);
            } else {
                group().channel().run(call);
            }
        }
        for (std::size_t b = 0; b < transits_.size(); ++b) {
            works[b].wait();
            take_values(b);
        }
    }

    // ---- behind both

    /// Copies all values to where the program has them.
    void take_values() {
        for (std::size_t b = 0; b < transits_.size(); ++b) take_values(b);
    }

  private:
    /// Of a bucket.
    struct Transit {
        std::shared_ptr<void> memory;
        Buffer values;
        /// Of all ranks; empty where this one does not reach them.
        std::vector<void*> peer_gradients = {};
        std::vector<void*> peer_values = {};
    };

    [[nodiscard]] BucketSet& buckets() const { return reducer_.buckets(); }
    [[nodiscard]] ProcessGroup& group() const { return reducer_.group(); }

    [[nodiscard]] T* value_of(std::size_t parameter) const {
        return static_cast<T*>(reducer_.parameters()[parameter].value);
    }

    [[nodiscard]] static std::span<T> elements(const Buffer& buffer, std::size_t first, std::size_t count) {
        return {static_cast<T*>(buffer.data) + first, count};
    }

    void find_pieces(std::size_t b, std::size_t largest) {
        const GradientBucket& bucket = buckets()[b];
        const std::size_t length = bucket.part(0, group().size()).count;
        const std::size_t begin = static_cast<std::size_t>(group().rank()) * length;
        for (std::size_t position = 0; position < bucket.indices().size(); ++position) {
            const std::size_t parameter = bucket.indices()[position];
            const std::size_t offset = bucket.offset(position);
            const std::size_t end = std::min(begin + length, offset + reducer_.parameters()[parameter].count);
            for (std::size_t first = std::max(begin, offset); first < end;) {
                const std::size_t count = std::min(largest, end - first);
                pieces_.push_back({parameter, first - offset, count, b, first});
                first += count;
            }
        }
    }

    /// In the buckets' order, also of this rank's own: where two parameters have one memory, the same one
    /// wins on all ranks.
    void take_values(std::size_t b) {
        for (const std::size_t i : buckets()[b].indices()) {
            const std::span<const T> sent = value_memory(i);
            if (sent.data() != value_of(i)) std::ranges::copy(sent, value_of(i));
        }
    }

    GradientReducer& reducer_;
    std::vector<Piece> pieces_;
    std::vector<Transit> transits_;
    std::vector<const void*> sources_;
};

}  // namespace DPTK_NAMESPACE::detail
