#pragma once

#include "dptk/nn/cpu/primitive.hpp"

#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

DPTK_INLINE void rebind_memory(const dnnl::memory& memory, void* data) {
    if (memory.get_data_handle() != data) dnnl::memory(memory).set_data_handle(data);
}

DPTK_INLINE dnnl::memory unbound(const Context& context, const Layout& layout) {
    return {layout, context.engine, DNNL_MEMORY_NONE};
}

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

DPTK_INLINE Primitive reorder(const Context& context, const dnnl::memory& from, const dnnl::memory& to) {
    const dnnl::reorder::primitive_desc described(context.engine, from.get_desc(), context.engine,
                                                  to.get_desc(), primitive_attributes());
    return {context, described, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}};
}

DPTK_INLINE const dnnl::memory& Converter::operator()(const dnnl::memory& source) {
    if (reorder_) {
        reorder_.set(DNNL_ARG_FROM, source).run();
    } else {
        result_ = source;
    }
    return result_;
}

}  // namespace DPTK_NAMESPACE::nn::cpu
