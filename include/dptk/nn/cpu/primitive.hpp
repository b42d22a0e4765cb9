/// oneDNN primitives with their arguments, created once and run many times, and the memory that they use.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/cpu/onednn.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// The engine and stream of a network, and the scratch memory that its primitives share, since they run one
/// after the other. Copies are cheap and refer to the same objects.
struct Context {
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
    ElementType operand_type = ElementType::f32;  ///< Of matrix products and convolutions.
    std::shared_ptr<AlignedArray<std::byte>> scratch = std::make_shared<AlignedArray<std::byte>>();
};

/// Makes `memory` refer to `data`. Does nothing if `memory` already refers to it, since oneDNN's call may
/// also write zeros to the padding.
inline void rebind_memory(const dnnl::memory& memory, void* data) {
    if (memory.get_data_handle() != data) dnnl::memory(memory).set_data_handle(data);
}

/// Returns a memory object for `layout` that does not refer to data yet.
[[nodiscard]] inline dnnl::memory unbound(const Context& context, const Layout& layout) {
    return {layout, context.engine, DNNL_MEMORY_NONE};
}

/// A primitive with its arguments; empty if default-constructed. Runs through oneDNN's C interface, since
/// the C++ interface accepts arguments as a map and copies the map on each call.
class Primitive {
  public:
    Primitive() = default;

    Primitive(const Context& context, const dnnl::primitive_desc_base& described,
              std::initializer_list<std::pair<int, dnnl::memory>> arguments = {})
        : primitive_(described.get()),
          stream_(context.stream),
          shared_scratch_(context.scratch),
          scratch_(unbound(context, described.scratchpad_desc())),
          scratch_bytes_(described.scratchpad_desc().get_size()) {
        for (const auto& [index, memory] : arguments) set(index, memory);
        set(DNNL_ARG_SCRATCHPAD, scratch_);
    }

    explicit operator bool() const noexcept { return shared_scratch_ != nullptr; }

    /// Sets the argument `index`, or replaces it by another memory object of the same layout.
    Primitive& set(int index, const dnnl::memory& memory) {
        auto argument = dptk::detail::find(arguments_, index, &dnnl_exec_arg_t::arg);
        if (argument == arguments_.end()) {
            argument = arguments_.insert(argument, dnnl_exec_arg_t{index, nullptr});
            kept_.emplace_back();
        }
        argument->memory = memory.get();
        kept_[static_cast<std::size_t>(argument - arguments_.begin())] = memory;
        return *this;
    }

    /// Runs the primitive and waits for its results.
    void run() {
        if (scratch_bytes_ != 0) rebind_memory(scratch_, shared_scratch_->reserve(scratch_bytes_));
        const auto count = static_cast<int>(arguments_.size());
        dnnl::error::wrap_c_api(
            dnnl_primitive_execute(primitive_.get(), stream_.get(), count, arguments_.data()),
            "could not execute a primitive");
        stream_.wait();
    }

  private:
    dnnl::primitive primitive_;
    dnnl::stream stream_;
    std::vector<dnnl_exec_arg_t> arguments_;
    /// The memory objects that arguments_ point to, in the same order.
    std::vector<dnnl::memory> kept_;
    std::shared_ptr<AlignedArray<std::byte>> shared_scratch_;
    dnnl::memory scratch_;
    std::size_t scratch_bytes_ = 0;
};

/// Returns a primitive that copies `from` to `to`, which may have different layouts.
[[nodiscard]] inline Primitive reorder(const Context& context, const dnnl::memory& from,
                                       const dnnl::memory& to) {
    const dnnl::reorder::primitive_desc described(context.engine, from.get_desc(), context.engine,
                                                  to.get_desc(), primitive_attributes());
    return {context, described, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}};
}

/// Converts memory to the layout that a primitive needs. By default, returns its input unchanged.
class Converter {
  public:
    Converter() = default;

    /// Makes a converter from the layout `from` to that of `copy`, the memory for the result.
    Converter(const Context& context, const Layout& from, const dnnl::memory& copy)
        : reorder_(reorder(context, unbound(context, from), copy)), result_(copy) {}

    /// Returns `source` itself if it already has the needed layout; otherwise the copy.
    const dnnl::memory& operator()(const dnnl::memory& source) {
        if (reorder_) {
            reorder_.set(DNNL_ARG_FROM, source).run();
        } else {
            result_ = source;
        }
        return result_;
    }

    /// Returns whether the result is a copy.
    [[nodiscard]] bool copies() const noexcept { return static_cast<bool>(reorder_); }

    /// Returns the result of the last call.
    [[nodiscard]] const dnnl::memory& result() const noexcept { return result_; }

  private:
    Primitive reorder_;
    dnnl::memory result_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu
