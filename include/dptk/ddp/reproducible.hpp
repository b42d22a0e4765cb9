/// Data parallelism whose result does not depend on the number of ranks, bit by bit.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/ddp/detail/model_parameters.hpp"
#include "dptk/ddp/detail/summation_tree.hpp"

namespace DPTK_NAMESPACE {

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
    ReproducibleDataParallel(ProcessGroup& group, ParameterSource source, std::size_t shards);

    /// The numbers of the pieces that this rank computes, in this order.
    [[nodiscard]] std::vector<std::size_t> shards() const;

    /// Takes the gradients of the next of these pieces, the mean over its `sample_count` samples, 0 included.
    /// Throws ArgumentError where this rank has given all of them. Does not communicate.
    void add_shard(std::size_t sample_count);

    /// Ends the step: on return the gradients are the mean over all pieces' samples. Collective, blocks.
    /// Throws ArgumentError on all ranks where one has not added all of its pieces, or has other parameters
    /// than at construction; the next step may begin.
    void synchronize();

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

    void lay_out();

    /// For all gradients; with zeros behind them in each row, and else with whatever an earlier step has
    /// left.
    [[nodiscard]] Memory take_memory();

    [[nodiscard]] detail::TreeNode range_of(int rank) const;

    [[nodiscard]] std::vector<detail::TreeNode> nodes_of(int rank) const;

    void read_addresses();

    /// leaf = gradients * samples
    void read_gradients(Sum& leaf, double samples) const;

    /// gradients = total * factor
    void write_gradients(double factor);

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

    void add(Memory& into, Memory& from) const;

    [[nodiscard]] Buffer buffer(std::size_t row, void* data, std::size_t count) const;

    /// Each rank gets a slice of all ranks' nodes, sums it over the tree, and gives the result to all.
    void exchange();

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

    void reset();

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

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/reproducible.ipp"
#endif
