/// The parameters of a sharded training (ZeRO) on one rank: this rank's pieces, their averages, and the
/// all-gather of the new values.
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
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/ddp/detail/gradient_reducer.hpp"

namespace DPTK_NAMESPACE::detail {

/// Elements of one parameter that belong to one rank.
struct ShardPiece {
    std::size_t parameter = 0;
    std::size_t first = 0;
    std::size_t count = 0;
    std::size_t bucket = 0;
    std::size_t in_bucket = 0;  // the position of the first element in the bucket
};

/// Values are of type T; gradients may be of another floating-point type. Values are sent in memory with the
/// layout of the buckets: in the buckets themselves, whose gradients are no longer needed, if these are of
/// type T; otherwise in separate memory. In separate memory the program may keep its values.
template <std::floating_point T>
class ShardedParameters {
  public:
    using Piece = ShardPiece;

    struct Options {
        /// The maximum number of elements in a piece.
        std::size_t largest_piece = std::numeric_limits<std::size_t>::max();
        /// Whether values have memory of their own, instead of the buckets' memory.
        bool has_value_memory = false;
    };

    /// Collective. The reducer must outlive this object.
    ShardedParameters(GradientReducer& reducer, const Options& options)
        : reducer_(reducer),
          largest_piece_(options.largest_piece),
          has_value_memory_(options.has_value_memory),
          pieces_(pieces_of(group().rank())) {
        for (std::size_t b = 0; b < buckets().size(); ++b) {
            const Buffer gradients = buckets()[b].gradients();
            ValueBuffer value_buffer{buckets()[b].memory(), gradients};
            if (options.has_value_memory || gradients.dtype != dtype_of<T>) {
                value_buffer.values.dtype = dtype_of<T>;
                value_buffer.memory = group().engine().allocate(value_buffer.values.bytes());
                value_buffer.values.data = value_buffer.memory.get();
            }
            value_buffer.peer_gradients = group().engine().peer_memory(gradients);
            value_buffer.peer_values = group().engine().peer_memory(value_buffer.values);
            value_buffers_.push_back(std::move(value_buffer));
        }
        read_values();
    }

    /// Copies the program's values to their separate memory, if they have any.
    void read_values() {
        for (std::size_t i = 0; has_value_memory_ && i < reducer_.parameters().size(); ++i) {
            if (buckets().has(i) && value_memory(i).data() != value_of(i))
                std::copy_n(value_of(i), reducer_.parameters()[i].count, value_memory(i).begin());
        }
    }

    /// Returns the pieces of this rank.
    [[nodiscard]] const std::vector<Piece>& pieces() const noexcept { return pieces_; }

    /// Returns the pieces of any rank.
    [[nodiscard]] std::vector<Piece> pieces_of(int rank) const {
        std::vector<Piece> pieces;
        for (std::size_t b = 0; b < buckets().size(); ++b) find_pieces(pieces, b, rank);
        return pieces;
    }

    [[nodiscard]] std::span<T> value(const Piece& piece) const {
        return {value_of(piece.parameter) + piece.first, piece.count};
    }

    /// Returns the gradient of a piece, in this rank's part of the bucket.
    [[nodiscard]] Buffer gradient(const Piece& piece) const {
        return buckets()[piece.bucket].gradients().slice(piece.in_bucket, piece.count);
    }

    /// Returns the gradient of a piece as elements of type T, valid until the next call.
    [[nodiscard]] std::span<const T> converted_gradient(const Piece& piece) {
        const Buffer own = gradient(piece);
        if (own.dtype == dtype_of<T>) return elements(own, 0, piece.count);
        converted_.resize(piece.count);
        convert({converted_.data(), piece.count, dtype_of<T>, {}}, own);
        return converted_;
    }

    /// Returns the memory for the values of parameter `i`.
    [[nodiscard]] std::span<T> value_memory(std::size_t i) const {
        const auto [bucket, position] = buckets().place(i);
        return elements(value_buffers_[bucket].values, buckets()[bucket].offset(position),
                        reducer_.parameters()[i].count);
    }

    [[nodiscard]] const std::shared_ptr<void>& value_memory_owner(std::size_t i) const {
        return value_buffers_[buckets().place(i).bucket].memory;
    }

    /// Returns whether each rank can access the gradients and values of all ranks.
    [[nodiscard]] bool is_shared() const noexcept {
        return detail::all_of(value_buffers_, [](const ValueBuffer& value_buffer) {
            return !value_buffer.peer_gradients.empty() && !value_buffer.peer_values.empty();
        });
    }

    // ---- if memory is shared: each rank calls these for its pieces, between two barriers

    /// Sets gradient(piece) to the average, or the sum, of all ranks' gradients of this piece.
    void reduce(const Piece& piece, ReduceOp op) {
        const std::vector<void*>& peers = value_buffers_[piece.bucket].peer_gradients;
        Buffer own = gradient(piece);
        const std::size_t first = piece.in_bucket * own.element_size();
        sources_.clear();
        for (void* const peer : peers) sources_.push_back(static_cast<const std::byte*>(peer) + first);
        reduce_together({sources_, {&own.data, 1}, piece.count, static_cast<double>(peers.size())}, own,
                        own.dtype, op);
    }

    /// Writes the piece's new values to all ranks.
    void write_to_peers(const Piece& piece) const {
        const std::span<const T> values = value(piece);
        for (void* const peer : value_buffers_[piece.bucket].peer_values) {
            T* const there = static_cast<T*>(peer) + piece.in_bucket;
            if (there != values.data()) detail::copy(values, there);
        }
    }

    // ---- if memory is not shared

    /// Reduces each bucket, so that each rank has its part of the averages, or sums. Collective, blocks.
    void reduce_all(ReduceOp op) {
        for (std::size_t b = 0; b < buckets().size(); ++b) {
            Collective call = buckets()[b].reduce_scatter(op, group().rank(), group().size());
            call.bucket = static_cast<int>(b);
            group().engine().run(call);
        }
    }

    /// Sends the pieces' new values to all ranks. Collective, blocks.
    void gather_values() {
        for (const Piece& piece : pieces_) {
            const std::span<T> there =
                elements(value_buffers_[piece.bucket].values, piece.in_bucket, piece.count);
            if (there.data() != value(piece).data()) detail::copy(value(piece), there.begin());
        }
        const bool in_background = !group().engine().competes_with_compute();
        std::vector<Work, PoolAllocator<Work>> works(value_buffers_.size());
        for (std::size_t b = 0; b < value_buffers_.size(); ++b) {
            const ValueBuffer& value_buffer = value_buffers_[b];
            const std::size_t part = value_buffer.values.count / static_cast<std::size_t>(group().size());
            const Collective call{
                .verb = Verb::all_gather,
                .input = value_buffer.values.slice(static_cast<std::size_t>(group().rank()) * part, part),
                .output = value_buffer.values,
                .bucket = static_cast<int>(b)};
            if (in_background) {
                works[b] = group().engine().start(call, value_buffer.memory);
            } else {
                group().engine().run(call);
            }
        }
        for (std::size_t b = 0; b < value_buffers_.size(); ++b) {
            works[b].wait();
            copy_values_out(b);
        }
    }

    // ---- in both cases

    /// Copies all values to the program's memory.
    void copy_values_out() {
        for (std::size_t b = 0; b < value_buffers_.size(); ++b) copy_values_out(b);
    }

  private:
    /// The memory for the values of a bucket's parameters, and the addresses of all ranks' memory.
    struct ValueBuffer {
        std::shared_ptr<void> memory;
        Buffer values;
        /// The addresses of the bucket's gradients and values on all ranks. Empty if this rank cannot
        /// access them.
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

    void find_pieces(std::vector<Piece>& pieces, std::size_t b, int rank) const {
        const GradientBucket& bucket = buckets()[b];
        const std::size_t length = bucket.part(0, group().size()).count;
        const std::size_t begin = static_cast<std::size_t>(rank) * length;
        for (std::size_t position = 0; position < bucket.indices().size(); ++position) {
            const std::size_t parameter = bucket.indices()[position];
            const std::size_t offset = bucket.offset(position);
            const std::size_t end = std::min(begin + length, offset + reducer_.parameters()[parameter].count);
            for (std::size_t first = std::max(begin, offset); first < end;) {
                const std::size_t count = std::min(largest_piece_, end - first);
                pieces.push_back({parameter, first - offset, count, b, first});
                first += count;
            }
        }
    }

    void copy_values_out(std::size_t b) {
        for (const std::size_t i : buckets()[b].indices()) {
            const std::span<const T> sent = value_memory(i);
            if (sent.data() != value_of(i)) detail::copy(sent, value_of(i));
        }
    }

    GradientReducer& reducer_;
    std::size_t largest_piece_;
    bool has_value_memory_;
    std::vector<Piece> pieces_;
    std::vector<ValueBuffer> value_buffers_;
    std::vector<const void*> sources_;
    std::vector<T> converted_;
};

}  // namespace DPTK_NAMESPACE::detail
