/// Data parallelism whose result does not depend on the number of ranks, bit by bit.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/local_reduce.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/ddp/model_parameters.hpp"
#include "dptk/ddp/model_table.hpp"
#include "dptk/ddp/summation_tree.hpp"

namespace dptk {

/// Each step's batch is computed in `shards` pieces, the same ones at every number of ranks: each rank
/// computes equally many, one after the other, and the pieces' gradients are summed over one fixed tree.
/// Piece s of all steps is what DistributedSampler(size, shards, s) gives.
///
/// 1, 2, 4 and 8 ranks then leave the same bits, where the program's own arithmetic does for one piece: the
/// same binary on the same kind of machine. Its price against DistributedDataParallel: nothing overlaps
/// backward; each rank keeps some more copies of its gradients, about the binary logarithm of its pieces, in
/// f32 (f64 for f64); and where its pieces are no node of the tree (shards and ranks not both powers of two),
/// it sends as many copies as nodes make them up.
class ReproducibleDataParallel {
  public:
    /// Values and gradients as for DistributedDataParallel. Gives all ranks rank 0's values. Collective.
    /// Throws on all ranks alike: ArgumentError where `shards` is no multiple of the number of ranks, or a
    /// rank's parameters are unusable; MismatchError where they differ. The group must outlive this.
    template <class Values, class Gradients>
    ReproducibleDataParallel(ProcessGroup& group, Values&& values, Gradients&& gradients, std::size_t shards)
        : ReproducibleDataParallel(
              group, ParameterSource(std::forward<Values>(values), std::forward<Gradients>(gradients)),
              shards) {}

    /// The same for whatever a ParameterSource finds: ParameterSource(model) of a model with a
    /// for_each_parameter, or of a container of pairs of value and gradient.
    ReproducibleDataParallel(ProcessGroup& group, ParameterSource source, std::size_t shards)
        : group_(group), parameters_(std::move(source)), root_{0, shards} {
        const auto ranks = static_cast<std::size_t>(group.size());
        std::string problem;
        try {
            parameters_.find();
            detail::require_lasting_gradients(parameters_.refs(), "ReproducibleDataParallel");
            detail::require_host_memory(parameters_.refs(), "ReproducibleDataParallel");
            if (shards == 0 || shards % ranks != 0)
                throw ArgumentError(
                    detail::text(shards, " shards are no multiple of the number of ranks, ", ranks));
        } catch (const std::exception& error) {
            problem = error.what();
        }
        detail::check_no_problem<ArgumentError>(group_, problem);
        std::string table = detail::text(shards, " shards\n");
        for (const ParameterRef& parameter : parameters_.refs())
            table += detail::parameter_line(parameter, false);
        detail::check_equal_tables(group_, "models", table);
        parameters_.broadcast_values(group_, 0);
        lay_out();
    }

    /// The numbers of the pieces that this rank computes, in this order.
    [[nodiscard]] std::vector<std::size_t> shards() const {
        const detail::TreeNode own = range_of(group_.rank());
        std::vector<std::size_t> numbers;
        for (std::size_t s = own.first; s < own.end; ++s) numbers.push_back(s);
        return numbers;
    }

    /// Takes the gradients of the next of these pieces, the mean over its `sample_count` samples, 0 included.
    /// Throws ArgumentError where this rank has given all of them. Does not communicate.
    void add_shard(std::size_t sample_count) {
        const detail::TreeNode own = range_of(group_.rank());
        if (own.first + given_ == own.end)
            throw ArgumentError(detail::text("rank ", group_.rank(), ": all ", given_,
                                             " shards of the step have been added"));
        read_addresses();
        Sum leaf{{own.first + given_, own.first + given_ + 1}, take_memory()};
        if (sample_count > 0 && problem_.empty()) {
            read_gradients(leaf, static_cast<double>(sample_count));
        } else {
            for (std::vector<std::byte>& row : leaf.memory) std::ranges::fill(row, std::byte{0});
        }
        sums_.push_back(std::move(leaf));
        ++given_;
        samples_ += sample_count;
        while (sums_.size() > 1) {
            const detail::TreeNode both{sums_[sums_.size() - 2].node.first, sums_.back().node.end};
            if (!detail::is_node_below(root_, both) || both.middle() != sums_.back().node.first) break;
            add(sums_[sums_.size() - 2].memory, sums_.back().memory);
            spare_.push_back(std::move(sums_.back().memory));
            sums_.pop_back();
            sums_.back().node = both;
        }
    }

    /// Ends the step: on return the gradients are the mean over all pieces' samples. Collective, blocks.
    /// Throws ArgumentError on all ranks where one has not added all of its pieces, or has other parameters
    /// than at construction; the next step may begin.
    void synchronize() {
        const detail::TreeNode own = range_of(group_.rank());
        if (own.first + given_ != own.end && problem_.empty())
            problem_ = detail::text("has added ", given_, " of its ", own.end - own.first, " shards");
        try {
            detail::check_no_problem<ArgumentError>(group_, std::exchange(problem_, {}));
        } catch (...) {
            reset();
            throw;
        }
        const std::uint64_t samples = group_.all_reduce_value(static_cast<std::uint64_t>(samples_));
        exchange();
        write_gradients(samples == 0 ? 0 : 1 / static_cast<double>(samples));
        reset();
    }

    /// The parameters in registration order, with the addresses of the last piece.
    [[nodiscard]] const std::vector<ParameterRef>& parameters() const noexcept { return parameters_.refs(); }

  private:
    /// All gradients of one dtype in a row, in the type in which they are summed.
    struct Row {
        DType dtype;  // f32 or f64
        std::size_t count = 0;
        std::vector<std::size_t> parameters;
    };
    using Memory = std::vector<std::vector<std::byte>>;  // of each row

    struct Sum {
        detail::TreeNode node;
        Memory memory;
    };

    void lay_out() {
        rows_ = {{DType::f32, 0, {}}, {DType::f64, 0, {}}};
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            Row& row = rows_[parameters_[i].dtype == DType::f64 ? 1 : 0];
            row.parameters.push_back(i);
            row.count += parameters_[i].count;
        }
        const auto ranks = static_cast<std::size_t>(group_.size());
        for (Row& row : rows_) row.count = (row.count + ranks - 1) / ranks * ranks;
    }

    /// For all gradients; with zeros behind them in each row, and else with whatever an earlier step has
    /// left.
    [[nodiscard]] Memory take_memory() {
        if (!spare_.empty()) {
            Memory memory = std::move(spare_.back());
            spare_.pop_back();
            return memory;
        }
        Memory memory;
        for (const Row& row : rows_) memory.emplace_back(row.count * dtype_size(row.dtype));
        return memory;
    }

    [[nodiscard]] detail::TreeNode range_of(int rank) const {
        const std::size_t each = root_.end / static_cast<std::size_t>(group_.size());
        return {static_cast<std::size_t>(rank) * each, (static_cast<std::size_t>(rank) + 1) * each};
    }

    [[nodiscard]] std::vector<detail::TreeNode> nodes_of(int rank) const {
        std::vector<detail::TreeNode> nodes;
        detail::append_cover(root_, range_of(rank), nodes);
        return nodes;
    }

    void read_addresses() {
        try {
            parameters_.read_addresses();
        } catch (const std::exception& error) {
            if (problem_.empty()) problem_ = error.what();
        }
    }

    /// leaf = gradients * samples
    void read_gradients(Sum& leaf, double samples) const {
        for_each_gradient(
            [&](const Buffer& gradient, const Buffer& sum) {
                detail::convert(sum, gradient);
                detail::scale(sum, sum.data, samples);
            },
            leaf.memory);
    }

    /// gradients = total * factor
    void write_gradients(double factor) {
        for_each_gradient(
            [&](const Buffer& gradient, const Buffer& sum) {
                detail::scale(sum, sum.data, factor);
                detail::convert(gradient, sum);
            },
            total_);
    }

    /// action(gradient, its place in the rows) for each parameter.
    template <class Action>
    void for_each_gradient(Action&& action, Memory& memory) const {
        for (std::size_t row = 0; row < rows_.size(); ++row) {
            const Buffer all = buffer(row, memory[row].data(), rows_[row].count);
            std::size_t position = 0;
            for (const std::size_t i : rows_[row].parameters) {
                const ParameterRef& parameter = parameters_[i];
                action(Buffer{parameter.gradient, parameter.count, parameter.dtype, parameter.device},
                       all.slice(position, parameter.count));
                position += parameter.count;
            }
        }
    }

    void add(Memory& into, Memory& from) const {
        for (std::size_t row = 0; row < rows_.size(); ++row)
            detail::combine(buffer(row, into[row].data(), rows_[row].count),
                            buffer(row, from[row].data(), rows_[row].count), ReduceOp::sum);
    }

    [[nodiscard]] Buffer buffer(std::size_t row, void* data, std::size_t count) const {
        return {data, count, rows_[row].dtype, {}};
    }

    /// Each rank gets a slice of all ranks' nodes, sums it over the tree, and gives the result to all.
    void exchange() {
        const auto ranks = static_cast<std::size_t>(group_.size());
        std::size_t slots = 1;
        for (int rank = 0; rank < group_.size(); ++rank) slots = std::max(slots, nodes_of(rank).size());
        if (total_.empty()) total_ = take_memory();
        for (std::size_t row = 0; row < rows_.size(); ++row) {
            const std::size_t slice = rows_[row].count / ranks;
            const std::size_t bytes = slice * dtype_size(rows_[row].dtype);
            if (bytes == 0) continue;
            out_.resize(ranks * slots * bytes);
            in_.resize(ranks * slots * bytes);
            for (std::size_t to = 0; to < ranks; ++to) {
                for (std::size_t n = 0; n < sums_.size(); ++n)
                    std::memcpy(&out_[(to * slots + n) * bytes], &sums_[n].memory[row][to * bytes], bytes);
            }
            group_.all_to_all(out_, in_);
            const auto place = [&](const detail::TreeNode& node) -> std::byte* {
                const auto rank = static_cast<int>(node.first / (root_.end / ranks));
                const std::vector<detail::TreeNode> nodes = nodes_of(rank);
                const auto found = std::ranges::find(nodes, node);
                if (found == nodes.end()) return nullptr;
                const auto n = static_cast<std::size_t>(found - nodes.begin());
                return &in_[(static_cast<std::size_t>(rank) * slots + n) * bytes];
            };
            const std::byte* sum = evaluate(root_, row, slice, place);
            std::byte* own = &total_[row][static_cast<std::size_t>(group_.rank()) * bytes];
            std::memcpy(own, sum, bytes);
            group_.all_gather(std::span<const std::byte>(own, bytes), total_[row]);
        }
    }

    /// Where the sum below a node is; in the place of its leftmost part.
    template <class Place>
    std::byte* evaluate(const detail::TreeNode& node, std::size_t row, std::size_t count,
                        Place&& place) const {
        if (std::byte* known = place(node)) return known;
        std::byte* left = evaluate(node.left(), row, count, place);
        std::byte* right = evaluate(node.right(), row, count, place);
        detail::combine(buffer(row, left, count), buffer(row, right, count), ReduceOp::sum);
        return left;
    }

    void reset() {
        for (Sum& sum : sums_) spare_.push_back(std::move(sum.memory));
        sums_.clear();
        given_ = 0;
        samples_ = 0;
    }

    ProcessGroup& group_;
    detail::ModelParameters parameters_;
    detail::TreeNode root_;
    std::vector<Row> rows_;

    std::vector<Sum> sums_;      // of the pieces so far: as few nodes as make them up
    std::vector<Memory> spare_;  // as much as a step has needed at once
    Memory total_;
    std::vector<std::byte> out_;
    std::vector<std::byte> in_;
    std::size_t given_ = 0;
    std::size_t samples_ = 0;
    std::string problem_;
};

}  // namespace dptk
