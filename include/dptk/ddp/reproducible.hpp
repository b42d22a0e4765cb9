/// Bitwise reproducible data parallelism: the result does not depend on the number of ranks, to the last
/// bit.
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

/// Averages gradients so that the result is bitwise equal for every number of ranks. Each step's batch is
/// computed in `shards` pieces, which are the same for every number of ranks. Each rank computes some of
/// them, one after the other: equally many if `shards` is a multiple of the number of ranks, and otherwise
/// one more on some ranks. The gradients of all pieces are summed in the order of a fixed binary tree. Piece
/// s consists of the samples that DistributedSampler(size, shards, s) returns.
///
/// All numbers of ranks up to `shards` compute the same bits, provided that the program computes the same
/// bits for one piece on each rank, as the same binary does on the same kind of machine. Unlike in
/// DistributedDataParallel, nothing overlaps backward, and each rank keeps additional copies of its
/// gradients: about log2 of its number of pieces, in f32, or in f64 for f64 gradients. If `shards` and the
/// number of ranks are not both powers of two, a rank's pieces may form several nodes of the tree instead
/// of one; the rank then sends one copy for each node.
class ReproducibleDataParallel {
  public:
    /// Accepts values and gradients as DistributedDataParallel does, and broadcasts rank 0's values.
    /// Collective. Throws on all ranks: ArgumentError if there are fewer shards than ranks, or if a
    /// rank's parameters are unusable; MismatchError if the parameters differ between ranks. The
    /// group must outlive this object.
    template <class Values, class Gradients>
    ReproducibleDataParallel(ProcessGroup& group, Values&& values, Gradients&& gradients, std::size_t shards)
        : ReproducibleDataParallel(
              group, ParameterSource(std::forward<Values>(values), std::forward<Gradients>(gradients)),
              shards) {}

    /// Accepts a ParameterSource: for example ParameterSource(model) with a model that has a
    /// for_each_parameter, or with a container of pairs of value and gradient. `parameters_to_ignore` are
    /// names of parameters that are neither broadcast nor averaged.
    ReproducibleDataParallel(ProcessGroup& group, ParameterSource source, std::size_t shards,
                             std::vector<std::string> parameters_to_ignore = {});

    /// Returns the indices of the pieces that this rank computes, in the order in which it computes them.
    [[nodiscard]] std::vector<std::size_t> shards() const;

    /// Adds the gradients of this rank's next piece, which are means over the piece's samples.
    /// `sample_count` is the number of these samples and may be 0. Throws ArgumentError if this rank has
    /// already added all of its pieces. Does not communicate.
    void add_shard(std::size_t sample_count);

    /// Ends the step: on return, the gradients are the mean over all pieces' samples. Collective, blocks.
    /// Throws ArgumentError on all ranks if a rank has not added all of its pieces, or if the number of its
    /// parameters, or the size, type or device of a parameter, has changed since construction; the next
    /// step may then begin.
    void synchronize();

    /// Returns the parameters in registration order, with the addresses of the last piece.
    [[nodiscard]] const std::vector<ParameterRef>& parameters() const noexcept { return parameters_.refs(); }

  private:
    friend class ElasticState;

    /// All gradients of one dtype, concatenated, in the type in which they are summed.
    struct Row {
        DType dtype;  // f32 or f64
        std::size_t count = 0;
        std::vector<std::size_t> parameters;
    };
    using Memory = std::vector<std::vector<std::byte>>;  // one block for each row

    struct Sum {
        detail::TreeNode node;
        Memory memory;
    };

    /// Compares the parameters between ranks, takes the values of rank `root`, and makes memory for the
    /// group's number of ranks. Collective.
    void begin(int root, std::string problem);

    /// Continues over the group, which was formed again. Collective.
    void continue_over(int root);

    /// Throws MembershipChanged if the members of an elastic job change, or this process has not joined it.
    void check_members() const;

    void lay_out();

    /// Returns memory for all gradients. Padding at the end of each row is zero; other contents are
    /// unspecified.
    [[nodiscard]] Memory take_memory();

    [[nodiscard]] detail::TreeNode range_of(int rank) const;
    [[nodiscard]] int rank_of(std::size_t shard) const;

    [[nodiscard]] std::vector<detail::TreeNode> nodes_of(int rank) const;

    void read_addresses();

    /// Computes leaf = gradients * samples.
    void read_gradients(Sum& leaf, double samples) const;

    /// Computes gradients = total * factor.
    void write_gradients(double factor);

    /// Calls action(gradient, elements) for each parameter, where `elements` are the gradient's elements in
    /// `memory`.
    template <class Action>
    void for_each_gradient(Action&& action, Memory& memory) const {
        for (std::size_t row = 0; row < rows_.size(); ++row) {
            const Buffer all = buffer(row, memory[row].data(), rows_[row].count);
            std::size_t position = 0;
            for (const std::size_t i : rows_[row].parameters) {
                const ParameterRef& parameter = parameters_[i];
                action(parameter.gradient_buffer(), all.slice(position, parameter.count));
                position += parameter.count;
            }
        }
    }

    void add(Memory& into, Memory& from) const;

    [[nodiscard]] Buffer buffer(std::size_t row, void* data, std::size_t count) const;

    /// Sums the nodes of all ranks over the tree: an all-to-all gives each rank one slice of all nodes,
    /// each rank sums its slice, and an all-gather distributes the results.
    void exchange();

    /// Computes the sum of the leaves below `node`, and returns the sum's address. place(n) returns the
    /// address of the sum of node n if that sum is already known, otherwise null. Adds in place: the memory
    /// of the known sums holds intermediate results afterwards.
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

    std::vector<Sum> sums_;      // the sums of the pieces so far, in as few nodes as possible
    std::vector<Memory> spare_;  // memory for reuse
    Memory total_;
    std::vector<std::byte> out_;
    std::vector<std::byte> in_;
    std::size_t added_ = 0;
    std::size_t samples_ = 0;
    std::size_t steps_ = 0;
    std::string problem_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/reproducible.ipp"
#endif
