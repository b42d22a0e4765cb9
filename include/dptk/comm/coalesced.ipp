#pragma once

#include "dptk/comm/coalesced.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE CoalescedCall::CoalescedCall(const Collective& like, std::size_t ranks)
    : call_(like),
      input_blocks_(like.verb == Verb::reduce_scatter ? ranks : 1),
      output_blocks_(like.verb == Verb::all_gather ? ranks : 1) {}

DPTK_INLINE bool CoalescedCall::can_include(const Buffer& input) const {
    return !input.on_device() && !is_on_device() && input.dtype == inputs_[0].dtype &&
           input.element_size() == inputs_[0].element_size();
}

DPTK_INLINE void CoalescedCall::add(const Buffer& input, const Buffer& output) {
    inputs_.push_back(input);
    outputs_.push_back(output);
}

DPTK_INLINE const Collective& CoalescedCall::pack() {
    if (is_on_device()) {
        call_.input = inputs_[0];
        call_.output = outputs_[0];
        return call_;
    }
    const bool in_place = call_.verb == Verb::all_reduce || call_.verb == Verb::broadcast;
    input_ = memory_for(inputs_);
    output_ = in_place ? input_ : memory_for(outputs_);
    call_.input = input_->buffer();
    call_.output = output_->buffer();
    for_each_block(call_.input, inputs_, input_blocks_,
                   [](const Buffer& packed, const Buffer& block) { convert(packed, block); });
    return call_;
}

DPTK_INLINE void CoalescedCall::unpack() const {
    if (is_on_device()) return;
    for_each_block(call_.output, outputs_, output_blocks_,
                   [](const Buffer& packed, const Buffer& block) { convert(block, packed); });
}

DPTK_INLINE std::shared_ptr<algorithms::Scratch> CoalescedCall::memory_for(
    const std::vector<Buffer>& buffers) {
    Buffer all = buffers[0];
    for (std::size_t i = 1; i < buffers.size(); ++i) all.count += buffers[i].count;
    return std::make_shared<algorithms::Scratch>(all);
}

DPTK_INLINE Collective coalesced_call(Verb verb, const CallOptions& options, const Reduction& reduction,
                                      int root) {
    return {.verb = verb,
            .reduction = reduction,
            .root = root,
            .stream = options.stream,
            .algorithm = options.algorithm,
            .timeout = options.timeout};
}

DPTK_INLINE std::string coalesced_problem(const Collective& like, std::size_t ranks,
                                          const std::vector<Buffer>& inputs,
                                          const std::vector<Buffer>& outputs) {
    if (inputs.size() != outputs.size())
        return text("expected ", inputs.size(), " output buffers, got ", outputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        const Buffer& in = inputs[i];
        const Buffer& out = outputs[i];
        if (reduces(like.verb)) check_reduction(in.dtype, like.reduction);
        const std::size_t expected = like.verb == Verb::all_gather ? in.count * ranks : in.count;
        const std::size_t found = like.verb == Verb::reduce_scatter ? out.count * ranks : out.count;
        if (in.dtype != out.dtype || in.element_size() != out.element_size() || expected != found)
            return text("buffer ", i, ": input of ", in.count, " x ", dtype_name(in.dtype),
                        " does not match output of ", out.count, " x ", dtype_name(out.dtype));
    }
    return {};
}

}  // namespace DPTK_NAMESPACE::detail
