#pragma once

#include "dptk/nn/cpu/primitive.hpp"

#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

DPTK_INLINE Primitive::Primitive(const Context& context, const dnnl::primitive_desc_base& described,
                                 std::initializer_list<std::pair<int, dnnl::memory>> arguments)
    : primitive_(described.get()),
      stream_(context.stream),
      shared_scratch_(context.scratch),
      scratch_(unbound(context, described.scratchpad_desc())),
      scratch_bytes_(described.scratchpad_desc().get_size()) {
    for (const auto& [index, memory] : arguments) set(index, memory);
    set(DNNL_ARG_SCRATCHPAD, scratch_);
}

DPTK_INLINE Primitive& Primitive::set(int index, const dnnl::memory& memory) {
    auto argument = dptk::detail::find(arguments_, index, &dnnl_exec_arg_t::arg);
    if (argument == arguments_.end()) {
        argument = arguments_.insert(argument, dnnl_exec_arg_t{index, nullptr});
        kept_.emplace_back();
    }
    argument->memory = memory.get();
    kept_[static_cast<std::size_t>(argument - arguments_.begin())] = memory;
    return *this;
}

DPTK_INLINE void Primitive::run() {
    if (scratch_bytes_ != 0) rebind_memory(scratch_, shared_scratch_->reserve(scratch_bytes_));
    const auto count = static_cast<int>(arguments_.size());
    dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), stream_.get(), count, arguments_.data()),
                            "could not execute a primitive");
    stream_.wait();
}

}  // namespace DPTK_NAMESPACE::nn::cpu
