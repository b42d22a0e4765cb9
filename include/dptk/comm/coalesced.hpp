/// Coalesced collectives: one call for many small buffers. Communicators and ProcessGroup inherit them. The
/// elements are packed into one buffer per dtype (or into one buffer of bytes, if the verb does not reduce),
/// and the results are unpacked again.
///
/// A BufferList may be empty. All ranks must pass the same number of buffers, of the same types and counts.
/// The calls behave like the group's own verbs, with two differences. First, a sum of floating-point numbers
/// may be computed in another order than by one call per buffer. Second, the elements are read when the call
/// is made, even by an _async call: operations that were started earlier on these buffers must be done before
/// the call, and the buffers must not be used between the call and the end of its Work. Buffers in device
/// memory are not packed: each results in a separate call, in `options.stream`.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/comm/buffer_lists.hpp"
#include "dptk/comm/call_options.hpp"
#include "dptk/comm/detail/joint_work.hpp"
#include "dptk/comm/detail/root.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/renamed.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// Buffers of one element type, packed into one call. Buffers that hold one block per rank are interleaved:
/// the packed buffer holds the first block of every buffer, then the second block of every buffer, and so on.
class CoalescedCall {
  public:
    CoalescedCall(const Collective& like, std::size_t ranks);

    /// Returns whether this call can include `input`. A buffer in device memory is always a separate call.
    [[nodiscard]] bool can_include(const Buffer& input) const;

    void add(const Buffer& input, const Buffer& output);

    [[nodiscard]] bool is_on_device() const { return inputs_[0].on_device(); }

    /// Packs the inputs and returns the call on the packed buffers.
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

/// Returns a call without its buffers.
[[nodiscard]] Collective coalesced_call(Verb verb, const CallOptions& options,
                                        const Reduction& reduction = {}, int root = 0);

/// Returns why the arguments are invalid, or an empty text if they are valid. Throws ArgumentError if the
/// operation is not defined for a dtype.
[[nodiscard]] std::string coalesced_problem(const Collective& like, std::size_t ranks,
                                            const std::vector<Buffer>& inputs,
                                            const std::vector<Buffer>& outputs);

/// Checks the arguments and creates the calls: one per element type (or one on bytes, if the verb does not
/// reduce), and one per buffer in device memory. `like` is the call without its buffers.
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
        auto same = detail::find_if(calls, [&](const auto& call) { return call->can_include(input); });
        if (same == calls.end()) same = calls.insert(same, std::make_shared<CoalescedCall>(like, ranks));
        (*same)->add(input, erase_type(outputs[i]));
    }
    return calls;
}

template <class Group>
void run_coalesced(Group& group, const Collective& like, const ErasedBuffers& inputs,
                   const ErasedBuffers& outputs) {
    for (const auto& call : coalesce(group, like, inputs.buffers, outputs.buffers)) {
        group.engine().run(call->pack());
        call->unpack();
    }
}

/// Starts the calls. The operations keep `owner` and the Allocations among the buffers alive.
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
        parts.push_back(group.engine().start(call->pack(), keep_alive, std::move(unpack)));
    }
    return join_works(std::move(parts), group.engine().control());
}

}  // namespace detail

/// The coalesced collectives of BasicCommunicator and ProcessGroup. `Self` is a group.
template <class Self>
class CoalescedVerbs {
  public:
    /// Performs an all_reduce of each buffer, in place. `operation` may be a user function if all buffers
    /// have one type. Collective; blocks. Throws ArgumentError if the operation is not defined for the type
    /// of a buffer.
    template <MutableBufferList B>
    void all_reduce_coalesced(B&& buffers, const ReduceOperationOnList<B>& operation = ReduceOp::sum,
                              const CallOptions& options = {}) {
        const auto erased = detail::erase_buffers(buffers);
        detail::run_coalesced(
            self(), detail::coalesced_call(Verb::all_reduce, options, detail::reduction_of(operation)),
            erased, erased);
    }

    /// Starts all_reduce_coalesced(buffers, operation) and returns at once. The elements must live until
    /// the Work is done; a list that only contains views (spans) may be destroyed earlier. Collective.
    template <MutableBufferList B>
        requires BufferListOutlivesCall<B>
    [[nodiscard]] Work all_reduce_coalesced_async(B&& buffers,
                                                  const ReduceOperationOnList<B>& operation = ReduceOp::sum,
                                                  const CallOptions& options = {}) {
        const auto erased = detail::erase_buffers(buffers);
        return detail::start_coalesced(
            self(), detail::coalesced_call(Verb::all_reduce, options, detail::reduction_of(operation)),
            erased, erased, detail::owner_of(operation));
    }

    /// Performs a broadcast of each buffer, in place. Collective; blocks. Throws ArgumentError if the root is
    /// not a rank of the group.
    template <MutableBufferList B>
    void broadcast_coalesced(B&& buffers, int root = 0, const CallOptions& options = {}) {
        const auto erased = detail::erase_buffers(buffers);
        detail::run_coalesced(self(), detail::coalesced_call(Verb::broadcast, options, {}, root), erased,
                              erased);
    }

    /// Starts broadcast_coalesced(buffers, root) and returns at once. The elements must live until the
    /// Work is done; a list that only contains views (spans) may be destroyed earlier. Collective.
    template <MutableBufferList B>
        requires BufferListOutlivesCall<B>
    [[nodiscard]] Work broadcast_coalesced_async(B&& buffers, int root = 0, const CallOptions& options = {}) {
        const auto erased = detail::erase_buffers(buffers);
        return detail::start_coalesced(self(), detail::coalesced_call(Verb::broadcast, options, {}, root),
                                       erased, erased);
    }

    /// Performs an all_gather of each input into the output at the same position of `outputs`. The output
    /// must have size() times as many elements as the input. Collective; blocks. Throws ArgumentError if the
    /// numbers of inputs and outputs differ, or if the type or count of an output does not match its input.
    template <BufferList In, MutableBufferList Out>
    void all_gather_coalesced(In&& inputs, Out&& outputs, const CallOptions& options = {}) {
        detail::run_coalesced(self(), detail::coalesced_call(Verb::all_gather, options),
                              detail::erase_buffers(inputs), detail::erase_buffers(outputs));
    }

    /// Starts all_gather_coalesced(inputs, outputs) and returns at once. The elements of both lists must
    /// live until the Work is done; lists that only contain views (spans) may be destroyed earlier.
    /// Collective.
    template <BufferList In, MutableBufferList Out>
        requires BufferListOutlivesCall<In> && BufferListOutlivesCall<Out>
    [[nodiscard]] Work all_gather_coalesced_async(In&& inputs, Out&& outputs,
                                                  const CallOptions& options = {}) {
        return detail::start_coalesced(self(), detail::coalesced_call(Verb::all_gather, options),
                                       detail::erase_buffers(inputs), detail::erase_buffers(outputs));
    }

    /// Performs a reduce_scatter of each input into the output at the same position of `outputs`. The input
    /// must have size() times as many elements as the output. `operation` may be a user function if all
    /// buffers have one type. Collective; blocks. Throws ArgumentError if the numbers of inputs and outputs
    /// differ, if the type or count of an output does not match its input, or if the operation is not defined
    /// for the type of a buffer.
    template <BufferList In, MutableBufferList Out>
    void reduce_scatter_coalesced(In&& inputs, Out&& outputs,
                                  const ReduceOperationOnList<Out>& operation = ReduceOp::sum,
                                  const CallOptions& options = {}) {
        detail::run_coalesced(
            self(), detail::coalesced_call(Verb::reduce_scatter, options, detail::reduction_of(operation)),
            detail::erase_buffers(inputs), detail::erase_buffers(outputs));
    }

    /// Starts reduce_scatter_coalesced(inputs, outputs, operation) and returns at once. The elements of
    /// both lists must live until the Work is done; lists that only contain views (spans) may be destroyed
    /// earlier. Collective.
    template <BufferList In, MutableBufferList Out>
        requires BufferListOutlivesCall<In> && BufferListOutlivesCall<Out>
    [[nodiscard]] Work reduce_scatter_coalesced_async(
        In&& inputs, Out&& outputs, const ReduceOperationOnList<Out>& operation = ReduceOp::sum,
        const CallOptions& options = {}) {
        return detail::start_coalesced(
            self(), detail::coalesced_call(Verb::reduce_scatter, options, detail::reduction_of(operation)),
            detail::erase_buffers(inputs), detail::erase_buffers(outputs), detail::owner_of(operation));
    }

  private:
    [[nodiscard]] Self& self() { return static_cast<Self&>(*this); }
};

// Former spellings, until version 0.3.
DPTK_MEMBER_NOW(all_reduce_coalesced)
DPTK_MEMBER_NOW(all_reduce_coalesced_async)
DPTK_MEMBER_NOW(broadcast_coalesced)
DPTK_MEMBER_NOW(broadcast_coalesced_async)
DPTK_MEMBER_NOW(all_gather_coalesced)
DPTK_MEMBER_NOW(all_gather_coalesced_async)
DPTK_MEMBER_NOW(reduce_scatter_coalesced)
DPTK_MEMBER_NOW(reduce_scatter_coalesced_async)

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/coalesced.ipp"
#endif
