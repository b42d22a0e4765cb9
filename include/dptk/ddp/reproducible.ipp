#pragma once

#include "dptk/ddp/reproducible.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/detail/elastic_group.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE ReproducibleDataParallel::ReproducibleDataParallel(ProcessGroup& group, ParameterSource source,
                                                               std::size_t shards,
                                                               std::vector<std::string> parameters_to_ignore)
    : group_(group), parameters_(std::move(source)), root_{0, shards} {
    std::string problem;
    try {
        parameters_.find({.parameters_to_ignore = std::move(parameters_to_ignore)});
        detail::require_lasting_gradients(parameters_.refs(), "ReproducibleDataParallel");
        detail::require_host_memory(parameters_.refs(), "ReproducibleDataParallel");
    } catch (const std::exception& error) {
        problem = error.what();
    }
    begin(0, std::move(problem));
}

DPTK_INLINE void ReproducibleDataParallel::begin(int root, std::string problem) {
    const auto ranks = static_cast<std::size_t>(group_.size());
    if (problem.empty() && root_.end < ranks)
        problem = detail::text("invalid number of shards ", root_.end,
                               ": expected at least the number of ranks, ", ranks);
    detail::check_no_problem<ArgumentError>(group_, problem);
    detail::check_equal_tables(group_, "models", detail::text(root_.end, " shards\n") + parameters_.table());
    parameters_.broadcast_values(group_, root);
    lay_out();
}

DPTK_INLINE void ReproducibleDataParallel::continue_over(int root) {
    reset();
    spare_.clear();
    total_.clear();
    problem_.clear();
    begin(root, {});
}

DPTK_INLINE void ReproducibleDataParallel::check_members() const {
    if (!group_.is_elastic()) return;
    if (!detail::ElasticGroup::is_complete(group_))
        throw MembershipChanged(
            "this rank does not have the state of its elastic job yet: call ElasticState::restore()");
    group_.engine().control()->job_state()->check();
}

DPTK_INLINE std::vector<std::size_t> ReproducibleDataParallel::shards() const {
    const detail::TreeNode own = range_of(group_.rank());
    std::vector<std::size_t> numbers;
    for (std::size_t s = own.first; s < own.end; ++s) numbers.push_back(s);
    return numbers;
}

DPTK_INLINE void ReproducibleDataParallel::add_shard(std::size_t sample_count) {
    const detail::TreeNode own = range_of(group_.rank());
    if (own.first + added_ == own.end)
        throw ArgumentError(detail::text("rank ", group_.rank(), ": all ", added_,
                                         " shards of the step have been added: call synchronize() first"));
    read_addresses();
    Sum leaf{{own.first + added_, own.first + added_ + 1}, take_memory()};
    if (sample_count > 0 && problem_.empty()) {
        read_gradients(leaf, static_cast<double>(sample_count));
    } else {
        for (std::vector<std::byte>& row : leaf.memory) detail::fill(row, std::byte{0});
    }
    sums_.push_back(std::move(leaf));
    ++added_;
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

DPTK_INLINE void ReproducibleDataParallel::synchronize() {
    const detail::PurposeScope here(group_.engine(),
                                    {.call = "synchronize()", .owner = "ReproducibleDataParallel"});
    check_members();
    const detail::TreeNode own = range_of(group_.rank());
    if (own.first + added_ != own.end && problem_.empty())
        problem_ = detail::text("has added ", added_, " of its ", own.end - own.first, " shards");
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
    ++steps_;
}

DPTK_INLINE void ReproducibleDataParallel::lay_out() {
    rows_ = {{DType::f32, 0, {}}, {DType::f64, 0, {}}};
    for (const std::size_t i : parameters_.sent()) {
        Row& row = rows_[parameters_[i].gradient_buffer().dtype == DType::f64 ? 1 : 0];
        row.parameters.push_back(i);
        row.count += parameters_[i].count;
    }
    const auto ranks = static_cast<std::size_t>(group_.size());
    for (Row& row : rows_) row.count = (row.count + ranks - 1) / ranks * ranks;
}

DPTK_INLINE ReproducibleDataParallel::Memory ReproducibleDataParallel::take_memory() {
    if (!spare_.empty()) {
        Memory memory = std::move(spare_.back());
        spare_.pop_back();
        return memory;
    }
    Memory memory;
    for (const Row& row : rows_) memory.emplace_back(row.count * dtype_size(row.dtype));
    return memory;
}

DPTK_INLINE detail::TreeNode ReproducibleDataParallel::range_of(int rank) const {
    const auto first = [&](int of) {
        return static_cast<std::size_t>(of) * root_.end / static_cast<std::size_t>(group_.size());
    };
    return {first(rank), first(rank + 1)};
}

DPTK_INLINE int ReproducibleDataParallel::rank_of(std::size_t shard) const {
    return static_cast<int>(((shard + 1) * static_cast<std::size_t>(group_.size()) - 1) / root_.end);
}

DPTK_INLINE std::vector<detail::TreeNode> ReproducibleDataParallel::nodes_of(int rank) const {
    std::vector<detail::TreeNode> nodes;
    detail::append_cover(root_, range_of(rank), nodes);
    return nodes;
}

DPTK_INLINE void ReproducibleDataParallel::read_addresses() {
    try {
        parameters_.read_addresses();
    } catch (const std::exception& error) {
        if (problem_.empty()) problem_ = error.what();
    }
}

DPTK_INLINE void ReproducibleDataParallel::read_gradients(Sum& leaf, double samples) const {
    for_each_gradient(
        [&](const Buffer& gradient, const Buffer& sum) {
            detail::convert(sum, gradient);
            detail::scale(sum, sum.data, samples);
        },
        leaf.memory);
}

DPTK_INLINE void ReproducibleDataParallel::write_gradients(double factor) {
    for_each_gradient(
        [&](const Buffer& gradient, const Buffer& sum) {
            detail::scale(sum, sum.data, factor);
            detail::convert(gradient, sum);
        },
        total_);
}

DPTK_INLINE void ReproducibleDataParallel::add(Memory& into, Memory& from) const {
    for (std::size_t row = 0; row < rows_.size(); ++row)
        detail::combine(buffer(row, into[row].data(), rows_[row].count),
                        buffer(row, from[row].data(), rows_[row].count), ReduceOp::sum);
}

DPTK_INLINE Buffer ReproducibleDataParallel::buffer(std::size_t row, void* data, std::size_t count) const {
    return {data, count, rows_[row].dtype, {}};
}

DPTK_INLINE void ReproducibleDataParallel::exchange() {
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
            const int rank = rank_of(node.first);
            const std::vector<detail::TreeNode> nodes = nodes_of(rank);
            const auto found = detail::find(nodes, node);
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

DPTK_INLINE void ReproducibleDataParallel::reset() {
    for (Sum& sum : sums_) spare_.push_back(std::move(sum.memory));
    sums_.clear();
    added_ = 0;
    samples_ = 0;
}

}  // namespace DPTK_NAMESPACE
