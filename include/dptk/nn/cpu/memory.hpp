/// Memory and primitives as the oneDNN layers use them: buffers that batch sizes share, copies into another
/// layout where one is needed, and primitives with their arguments, made once and run many times.
#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <utility>

#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/tensor.hpp"

namespace dptk::nn::cpu {

/// Where a network runs, and the scratch memory that its primitives, one after the other, share. Points, and
/// is cheap to copy.
struct Context {
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
    std::shared_ptr<AlignedArray<std::byte>> scratch = std::make_shared<AlignedArray<std::byte>>();
};

/// Lets `memory` stand for what lies at `data`. oneDNN writes the padding at this occasion, hence the
/// comparison.
inline void rebind_memory(const dnnl::memory& memory, void* data) {
    if (memory.get_data_handle() != data) dnnl::memory(memory).set_data_handle(data);
}

/// A memory object for `layout` that stands for nothing yet.
[[nodiscard]] inline dnnl::memory unbound(const Context& context, const Layout& layout) {
    return {layout, context.engine, DNNL_MEMORY_NONE};
}

/// Copies between layouts, once; see Converter for copies that are repeated.
inline void reorder(const Context& context, const dnnl::memory& from, const dnnl::memory& to) {
    dnnl::stream stream = context.stream;
    dnnl::memory source = from;
    dnnl::memory target = to;
    dnnl::reorder(source, target).execute(stream, source, target);
    stream.wait();
}

/// A primitive with its arguments. Empty until it is made.
class Operation {
  public:
    using Arguments = std::unordered_map<int, dnnl::memory>;

    Operation() = default;

    template <class Primitive>
    Operation(const Context& context, const Primitive& primitive,
              const typename Primitive::primitive_desc& described, Arguments arguments)
        : context_(&context),
          primitive_(primitive),
          arguments_(std::move(arguments)),
          scratch_(unbound(context, described.scratchpad_desc())),
          scratch_bytes_(described.scratchpad_desc().get_size()) {
        arguments_.emplace(DNNL_ARG_SCRATCHPAD, scratch_);
    }

    explicit operator bool() const noexcept { return context_ != nullptr; }

    /// Replaces the argument `index` by another memory object of the same layout.
    Operation& set(int index, const dnnl::memory& memory) {
        arguments_[index] = memory;
        return *this;
    }

    /// On return the results are there.
    void run() {
        if (scratch_bytes_ != 0) rebind_memory(scratch_, context_->scratch->reserve(scratch_bytes_));
        dnnl::stream stream = context_->stream;
        primitive_.execute(stream, arguments_);
        stream.wait();
    }

  private:
    const Context* context_ = nullptr;
    dnnl::primitive primitive_;
    Arguments arguments_;
    dnnl::memory scratch_;
    std::size_t scratch_bytes_ = 0;
};

/// Brings memory into the layout that a primitive wants, again and again, with memory of its own for the
/// copy.
class Converter {
  public:
    /// `source` itself where it lies as `wanted` says already, else a copy, valid until the next call.
    const dnnl::memory& operator()(const Context& context, const dnnl::memory& source, const Layout& wanted) {
        const Layout layout = source.get_desc();
        if (layout == wanted) return kept_ = source;
        if (!copy_ || layout != from_ || copy_.get_desc() != wanted) {
            copy_ = dnnl::memory(wanted, context.engine);
            from_ = layout;
            primitive_ = dnnl::reorder(source, copy_);
        }
        dnnl::stream stream = context.stream;
        dnnl::memory from = source;
        primitive_.execute(stream, from, copy_);
        stream.wait();
        return copy_;
    }

  private:
    Layout from_;
    dnnl::memory kept_;
    dnnl::memory copy_;
    dnnl::reorder primitive_;
};

}  // namespace dptk::nn::cpu
