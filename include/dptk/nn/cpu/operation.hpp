/// Primitives with their arguments, made once and run many times.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/onednn.hpp"

namespace dptk::nn::cpu {

/// A primitive with its arguments. Empty until it is made. Runs through oneDNN's C interface, since the C++
/// one takes its arguments in a map, and copies that, each time.
class Operation {
  public:
    Operation() = default;

    Operation(const Context& context, const dnnl::primitive_desc_base& described,
              std::initializer_list<std::pair<int, dnnl::memory>> arguments)
        : primitive_(described.get()),
          stream_(context.stream),
          shared_scratch_(context.scratch),
          scratch_(unbound(context, described.scratchpad_desc())),
          scratch_bytes_(described.scratchpad_desc().get_size()) {
        for (const auto& [index, memory] : arguments) set(index, memory);
        set(DNNL_ARG_SCRATCHPAD, scratch_);
    }

    explicit operator bool() const noexcept { return shared_scratch_ != nullptr; }

    /// Gives the argument `index`, or replaces it by another memory object of the same layout.
    Operation& set(int index, const dnnl::memory& memory) {
        auto argument = std::ranges::find(arguments_, index, &dnnl_exec_arg_t::arg);
        if (argument == arguments_.end()) {
            argument = arguments_.insert(argument, dnnl_exec_arg_t{index, nullptr});
            kept_.emplace_back();
        }
        argument->memory = memory.get();
        kept_[static_cast<std::size_t>(argument - arguments_.begin())] = memory;
        return *this;
    }

    /// On return the results are there.
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
    /// The memory objects that the arguments, one for one, point to.
    std::vector<dnnl::memory> kept_;
    std::shared_ptr<AlignedArray<std::byte>> shared_scratch_;
    dnnl::memory scratch_;
    std::size_t scratch_bytes_ = 0;
};

}  // namespace dptk::nn::cpu
