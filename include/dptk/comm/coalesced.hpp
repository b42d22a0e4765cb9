/// Collectives on several buffers at once: few calls where there are many small buffers. The elements are
/// copied into one buffer for each dtype (into one of bytes, where they only move), and the results back.
///
/// A BufferList may be empty. All ranks give the same number of buffers, of the same types and counts. All
/// else is as with the group's own verbs, but for two things. A sum of floats may be rounded in another order
/// than by a call for each buffer. And the elements are read when the call is made: what was started on these
/// buffers before must be done by then, and nothing else may use them until the Work is done. Buffers in
/// device memory are not copied: each is a call of its own, in `stream`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/comm/buffer_lists.hpp"
#include "dptk/comm/detail/joint_work.hpp"
#include "dptk/comm/detail/root.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// Buffers of one kind of elements, as one call. A buffer with a block for each rank is cut: all buffers'
/// first blocks come first, then all second ones.
class CoalescedCall {
  public:
    CoalescedCall(const Collective& like, std::size_t ranks);

    /// Device memory is not copied: each buffer is a call of its own.
    [[nodiscard]] bool takes(const Buffer& input) const;

    void add(const Buffer& input, const Buffer& output);

    [[nodiscard]] bool is_on_device() const { return inputs_[0].on_device(); }

    /// The call on copies of the inputs.
    [[nodiscard]] const Collective& pack();

    /// Copies the results to the outputs.
    void unpack() const;

  private:
    [[nodiscard]] static std::shared_ptr<algorithms::Scratch> memory_for(const std::vector<Buffer>& buffers);

    template <class Action>
    static void for_each_block(const Buffer& packed, const std::vector<Buffer>& buffers, std::size_t blocks,
                               Action&& action) {
        std::size_t first = 0;
        for (std::size_t i = 0; i < blocks; ++i) {
            for (const Buffer& buffer : buffers) {
                const std::size_t count = buffer.count / blocks;
                action(packed.slice(first, count), buffer.slice(i * count, count));
                first += count;
            }
        }
    }

    Collective call_;
    std::size_t input_blocks_;
    std::size_t output_blocks_;
    std::vector<Buffer> inputs_;
    std::vector<Buffer> outputs_;
    std::shared_ptr<algorithms::Scratch> input_;
    std::shared_ptr<algorithms::Scratch> output_;
};

/// Why the call cannot be; empty where it can. Throws ArgumentError for an operation without a meaning.
[[nodiscard]] std::string coalesced_problem(const Collective& like, std::size_t ranks,
                                            const std::vector<Buffer>& inputs,
                                            const std::vector<Buffer>& outputs);

/// Checks `like`, which has no buffers yet, and makes one call of it for each kind of elements.
template <class Group>
[[nodiscard]] std::vector<std::shared_ptr<CoalescedCall>> coalesce(Group& group, const Collective& like,
                                                                   const std::vector<Buffer>& inputs,
                                                                   const std::vector<Buffer>& outputs) {
    const auto ranks = static_cast<std::size_t>(group.size());
    std::string problem = root_problem(like.root, group.size());
    if (problem.empty()) problem = coalesced_problem(like, ranks, inputs, outputs);
    if (!problem.empty())
        throw ArgumentError(
            text("rank ", group.rank(), " of ", ranks, ": coalesced ", verb_name(like.verb), ": ", problem));

    const auto erase_type = [&](const Buffer& buffer) {
        return reduces(like.verb) ? buffer : Buffer{buffer.data, buffer.bytes(), DType::u8, buffer.device, 1};
    };
    std::vector<std::shared_ptr<CoalescedCall>> calls;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        const Buffer input = erase_type(inputs[i]);
        auto same = std::ranges::find_if(calls, [&](const auto& call) { return call->takes(input); });
        if (same == calls.end()) same = calls.insert(same, std::make_shared<CoalescedCall>(like, ranks));
        (*same)->add(input, erase_type(outputs[i]));
    }
    return calls;
}

template <class Group>
void run_coalesced(Group& group, const Collective& like, const ErasedBuffers& inputs,
                   const ErasedBuffers& outputs) {
    for (const auto& call : coalesce(group, like, inputs.buffers, outputs.buffers)) {
        group.channel().run(call->pack());
        call->unpack();
    }
}

/// `owner` is what the operation must keep alive, besides the Allocations among the buffers.
template <class Group>
[[nodiscard]] Work start_coalesced(Group& group, const Collective& like, const ErasedBuffers& inputs,
                                   const ErasedBuffers& outputs,
                                   const std::shared_ptr<const void>& owner = nullptr) {
    const auto keep_alive = std::make_shared<std::vector<std::shared_ptr<const void>>>(inputs.owners);
    keep_alive->insert(keep_alive->end(), outputs.owners.begin(), outputs.owners.end());
    keep_alive->push_back(owner);
    std::vector<Work> parts;
    for (const auto& call : coalesce(group, like, inputs.buffers, outputs.buffers)) {
        std::function<void()> unpack;
        if (!call->is_on_device()) unpack = [call] { call->unpack(); };
        parts.push_back(group.channel().start(call->pack(), keep_alive, std::move(unpack)));
    }
    return join_works(parts);
}

}  // namespace detail

/// all_reduce of each buffer, in place. `operation` may be a function of the user's where all buffers are of
/// one type. Collective, as are all of these; throws ArgumentError for buffers that do not fit.
template <class Group, MutableBufferList B>
void all_reduce_coalesced(Group& group, B&& buffers,
                          const ReduceOperationOnList<B>& operation = ReduceOp::sum, StreamRef stream = {}) {
    const auto erased = detail::erase_buffers(buffers);
    detail::run_coalesced(
        group, {.verb = Verb::all_reduce, .reduction = detail::reduction_of(operation), .stream = stream},
        erased, erased);
}

/// Starts all_reduce_coalesced(group, buffers, operation). The elements must live until the Work is done; a
/// list of views need not.
template <class Group, MutableBufferList B>
    requires BufferListOutlivesCall<B>
[[nodiscard]] Work all_reduce_coalesced_async(Group& group, B&& buffers,
                                              const ReduceOperationOnList<B>& operation = ReduceOp::sum,
                                              StreamRef stream = {}) {
    const auto erased = detail::erase_buffers(buffers);
    return detail::start_coalesced(
        group, {.verb = Verb::all_reduce, .reduction = detail::reduction_of(operation), .stream = stream},
        erased, erased, detail::owner_of(operation));
}

/// broadcast of each buffer, in place.
template <class Group, MutableBufferList B>
void broadcast_coalesced(Group& group, B&& buffers, int root = 0, StreamRef stream = {}) {
    const auto erased = detail::erase_buffers(buffers);
    detail::run_coalesced(group, {.verb = Verb::broadcast, .root = root, .stream = stream}, erased, erased);
}

/// Starts broadcast_coalesced(group, buffers, root). The elements must live until the Work is done; a list of
/// views need not.
template <class Group, MutableBufferList B>
    requires BufferListOutlivesCall<B>
[[nodiscard]] Work broadcast_coalesced_async(Group& group, B&& buffers, int root = 0, StreamRef stream = {}) {
    const auto erased = detail::erase_buffers(buffers);
    return detail::start_coalesced(group, {.verb = Verb::broadcast, .root = root, .stream = stream}, erased,
                                   erased);
}

/// all_gather of each input into the output at its position, which has size() times as many elements.
template <class Group, BufferList In, MutableBufferList Out>
void all_gather_coalesced(Group& group, In&& inputs, Out&& outputs, StreamRef stream = {}) {
    detail::run_coalesced(group, {.verb = Verb::all_gather, .stream = stream}, detail::erase_buffers(inputs),
                          detail::erase_buffers(outputs));
}

/// Starts all_gather_coalesced(group, inputs, outputs). The elements of both must live until the Work is
/// done; lists of views need not.
template <class Group, BufferList In, MutableBufferList Out>
    requires BufferListOutlivesCall<In> && BufferListOutlivesCall<Out>
[[nodiscard]] Work all_gather_coalesced_async(Group& group, In&& inputs, Out&& outputs,
                                              StreamRef stream = {}) {
    return detail::start_coalesced(group, {.verb = Verb::all_gather, .stream = stream},
                                   detail::erase_buffers(inputs), detail::erase_buffers(outputs));
}

/// reduce_scatter of each input, which has size() times as many elements as the output at its position.
/// `operation` may be a function of the user's where all buffers are of one type.
template <class Group, BufferList In, MutableBufferList Out>
void reduce_scatter_coalesced(Group& group, In&& inputs, Out&& outputs,
                              const ReduceOperationOnList<Out>& operation = ReduceOp::sum,
                              StreamRef stream = {}) {
    detail::run_coalesced(
        group, {.verb = Verb::reduce_scatter, .reduction = detail::reduction_of(operation), .stream = stream},
        detail::erase_buffers(inputs), detail::erase_buffers(outputs));
}

/// Starts reduce_scatter_coalesced(group, inputs, outputs, operation). The elements of both must live until
/// the Work is done; lists of views need not.
template <class Group, BufferList In, MutableBufferList Out>
    requires BufferListOutlivesCall<In> && BufferListOutlivesCall<Out>
[[nodiscard]] Work reduce_scatter_coalesced_async(Group& group, In&& inputs, Out&& outputs,
                                                  const ReduceOperationOnList<Out>& operation = ReduceOp::sum,
                                                  StreamRef stream = {}) {
    return detail::start_coalesced(
        group, {.verb = Verb::reduce_scatter, .reduction = detail::reduction_of(operation), .stream = stream},
        detail::erase_buffers(inputs), detail::erase_buffers(outputs), detail::owner_of(operation));
}

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/coalesced.ipp"
#endif
