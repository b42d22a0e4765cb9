/// DistributedDataParallel (DDP) for libtorch modules, like torch.nn.parallel.DistributedDataParallel in
/// Python: values and buffers are broadcast to all ranks, and gradients are averaged in buckets that are
/// sent while autograd still runs. For libtorch 1.13 and newer; adapters/libtorch_data.hpp has the sampler
/// for data loaders.
#pragma once

#if !__has_include(<torch/torch.h>)
#error "dptk/adapters/libtorch.hpp needs libtorch: its folders include and include/torch/csrc/api/include"
#endif

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/fnv1a.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/error.hpp"
#include "dptk/ddp/detail/gradient_reducer.hpp"
#include "dptk/ddp/distributed_data_parallel.hpp"

namespace DPTK_NAMESPACE {

template <>
struct DTypeTraits<c10::Half> {
    static constexpr DType value = DType::f16;
};

template <>
struct DTypeTraits<c10::BFloat16> {
    static constexpr DType value = DType::bf16;
};

template <>
struct DTypeTraits<c10::complex<float>> {
    static constexpr DType value = DType::c64;
};

template <>
struct DTypeTraits<c10::complex<double>> {
    static constexpr DType value = DType::c128;
};

namespace libtorch {

/// Returns dptk's DType for an element type of libtorch. Throws ArgumentError if dptk has no such type.
[[nodiscard]] inline DType dtype_of(c10::ScalarType type) {
    switch (type) {
        case c10::kBool: return DType::boolean;
        case c10::kByte: return DType::u8;
        case c10::kChar: return DType::i8;
        case c10::kShort: return DType::i16;
        case c10::kInt: return DType::i32;
        case c10::kLong: return DType::i64;
        case c10::kHalf: return DType::f16;
        case c10::kBFloat16: return DType::bf16;
        case c10::kFloat: return DType::f32;
        case c10::kDouble: return DType::f64;
        case c10::kComplexFloat: return DType::c64;
        case c10::kComplexDouble: return DType::c128;
        default: throw ArgumentError(detail::text("dptk has no DType for a tensor of ", c10::toString(type)));
    }
}

/// Returns the elements of a tensor in host memory as a span, for collectives:
/// group.all_reduce(span_of<float>(loss)). The tensor still owns them. Throws ArgumentError if the tensor
/// has another element type, is on a device, or is not contiguous.
template <Element T>
[[nodiscard]] std::span<T> span_of(const at::Tensor& tensor) {
    if (dtype_of(tensor.scalar_type()) != dptk::dtype_of<T> || !tensor.device().is_cpu() ||
        !tensor.is_contiguous())
        throw ArgumentError(detail::text("span_of: expected a contiguous tensor of ",
                                         dtype_name(dptk::dtype_of<T>), " on cpu, got ",
                                         c10::toString(tensor.scalar_type()), " on ", tensor.device().str(),
                                         tensor.is_contiguous() ? "" : ", not contiguous"));
    return {static_cast<T*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.numel())};
}

namespace detail {

using dptk::detail::GradientReducer;
using dptk::detail::text;

[[nodiscard]] inline Device device_of(const std::string& name, c10::Device device) {
    if (device.is_cpu()) return {};
    if (device.is_cuda() && device.has_index()) return {DeviceType::cuda, device.index()};
    throw ArgumentError(text(name, " is on ", device.str(), ": expected host memory or a CUDA device"));
}

/// Returns the memory of a tensor whose elements are dense, in any order. Throws ArgumentError for any
/// other tensor.
[[nodiscard]] inline Buffer memory_of(const std::string& name, const at::Tensor& tensor) {
    if (tensor.layout() != c10::kStrided || !tensor.is_non_overlapping_and_dense())
        throw ArgumentError(
            text(name, " is sparse, or a view with gaps or repeated elements: expected a dense tensor"));
    return {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()), dtype_of(tensor.scalar_type()),
            device_of(name, tensor.device())};
}

/// Returns 0 for row-major elements; otherwise a number that identifies their order.
[[nodiscard]] inline std::uint64_t layout_of(const at::Tensor& tensor) {
    if (tensor.is_contiguous()) return 0;
    const c10::IntArrayRef strides = tensor.strides();
    return dptk::detail::fnv1a(std::string_view(reinterpret_cast<const char*>(strides.data()),
                                                strides.size() * sizeof(std::int64_t)));
}

/// The parameters of a module, each one once, and their gradients in autograd.
class ModuleParameters {
  public:
    explicit ModuleParameters(const torch::nn::Module& module) {
        std::unordered_set<const c10::TensorImpl*> seen;
        for (const auto& item : module.named_parameters()) {
            if (!item.value().defined() || !seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
            names_.push_back(item.key());
            tensors_.push_back(item.value());
        }
    }

    [[nodiscard]] std::size_t size() const noexcept { return tensors_.size(); }
    [[nodiscard]] const at::Tensor& operator[](std::size_t i) const noexcept { return tensors_[i]; }

    /// Returns the names of the parameters that do not require a gradient.
    [[nodiscard]] std::vector<std::string> frozen() const {
        std::vector<std::string> names;
        for (std::size_t i = 0; i < size(); ++i)
            if (!tensors_[i].requires_grad()) names.push_back(names_[i]);
        return names;
    }

    /// Broadcasts rank 0's values of the parameters that do not require a gradient. Collective, blocks.
    void broadcast_frozen(ProcessGroup& group) const {
        for (std::size_t i = 0; i < size(); ++i) {
            if (tensors_[i].requires_grad()) continue;
            const Buffer value = memory_of(names_[i], tensors_[i]);
            dptk::detail::ModelParameters::run(group,
                                               {.verb = Verb::broadcast, .input = value, .output = value});
        }
    }

    void for_each_parameter(ParameterSink& sink) {
        refs_.resize(size());
        for (std::size_t i = 0; i < size(); ++i) {
            const Buffer value = memory_of(names_[i], tensors_[i]);
            const c10::IntArrayRef sizes = tensors_[i].sizes();
            ParameterRef& ref = refs_[i];
            ref.name = names_[i];
            ref.shape.assign(sizes.begin(), sizes.end());
            ref.dtype = value.dtype;
            ref.device = value.device;
            ref.count = value.count;
            ref.value = value.data;
            ref.lazy_gradient = [this, i](IfMissing if_missing) { return gradient(i, if_missing); };
            ref.layout = layout_of(tensors_[i]);
            sink(std::as_const(ref));
        }
    }

    /// Makes subsequent gradients lie in the memory of the buckets. This memory exists as long as any of
    /// these gradients.
    void put_gradients_into(GradientReducer& reducer) {
        views_.resize(size());
        for (std::size_t i = 0; i < size(); ++i) {
            if (!tensors_[i].requires_grad()) continue;
            const Buffer place = reducer.gradient_memory(i);
            views_[i] = torch::from_blob(
                place.data, tensors_[i].sizes(), tensors_[i].strides(),
                [memory = reducer.bucket_memory(i)](void*) {}, tensors_[i].options());
        }
    }

    /// Returns the address of gradient `i`, with elements in the order of the value's. Replaces the
    /// gradient by a copy if the gradient is sparse, in another order, or outside its bucket after
    /// put_gradients_into().
    [[nodiscard]] void* gradient(std::size_t i, IfMissing if_missing) {
        const torch::NoGradGuard no_grad;
        at::Tensor& gradient = tensors_[i].mutable_grad();
        if (!gradient.defined() && if_missing == IfMissing::null) return nullptr;
        at::Tensor place = views_.empty() ? at::Tensor() : views_[i];
        if (gradient.defined() &&
            (place.defined() ? gradient.data_ptr() == place.data_ptr() : fits(gradient, i)))
            return gradient.data_ptr();
        if (!place.defined()) place = at::empty_like(tensors_[i]);
        if (gradient.defined()) place.copy_(gradient.is_sparse() ? gradient.to_dense() : gradient);
        gradient = place;
        return place.data_ptr();
    }

  private:
    [[nodiscard]] bool fits(const at::Tensor& gradient, std::size_t i) const {
        return gradient.layout() == c10::kStrided && gradient.strides() == tensors_[i].strides();
    }

    std::vector<std::string> names_;
    std::vector<at::Tensor> tensors_;
    std::vector<at::Tensor> views_;   // into the buckets; empty unless gradients lie in them
    std::vector<ParameterRef> refs_;  // for for_each_parameter()
};

/// For the lifetime of this object, marks each gradient as ready after autograd has accumulated it.
class GradientHooks {
  public:
    /// Both arguments must outlive this object.
    GradientHooks(ModuleParameters& parameters, GradientReducer& reducer) {
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            if (!parameters[i].requires_grad()) continue;
            Accumulator accumulator = torch::autograd::impl::grad_accumulator(parameters[i]);
            const std::uintptr_t key =
                accumulator->add_post_hook(std::make_unique<Hook>(parameters, reducer, i));
            hooks_.emplace_back(std::move(accumulator), key);
        }
    }

    ~GradientHooks() {
        for (const auto& [accumulator, key] : hooks_) accumulator->del_post_hook(key);
    }

    GradientHooks(const GradientHooks&) = delete;
    GradientHooks& operator=(const GradientHooks&) = delete;

  private:
    /// A shared pointer whose type depends on libtorch's version. Tensors hold their accumulators weakly.
    using Accumulator = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

    class Hook final : public torch::autograd::FunctionPostHook {
      public:
        Hook(ModuleParameters& parameters, GradientReducer& reducer, std::size_t i)
            : parameters_(parameters), reducer_(reducer), i_(i) {}

        torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                                  const torch::autograd::variable_list&) override {
            void* gradient = parameters_.gradient(i_, IfMissing::null);
            gradient != nullptr ? reducer_.mark_ready(i_, gradient) : reducer_.mark_unused(i_);
            return outputs;
        }

      private:
        ModuleParameters& parameters_;
        GradientReducer& reducer_;
        std::size_t i_;
    };

    std::vector<std::pair<Accumulator, std::uintptr_t>> hooks_;
};

[[nodiscard]] inline BufferSource buffers_of(const torch::nn::Module& module) {
    std::vector<std::pair<std::string, at::Tensor>> buffers;
    for (const auto& item : module.named_buffers())
        if (item.value().defined()) buffers.emplace_back(item.key(), item.value());
    return BufferSource([buffers = std::move(buffers)] {
        std::vector<Buffer> memory;
        for (const auto& [name, tensor] : buffers) memory.push_back(memory_of(name, tensor));
        return memory;
    });
}

[[nodiscard]] inline DistributedDataParallelOptions options_for(const torch::nn::Module& module,
                                                                const ModuleParameters& parameters,
                                                                DistributedDataParallelOptions options) {
    options.ready = Ready::marked;
    if (!options.buffers && !module.buffers().empty()) options.buffers = buffers_of(module);
    for (std::string& name : parameters.frozen()) options.parameters_to_ignore.push_back(std::move(name));
    return options;
}

}  // namespace detail

/// A dptk::DistributedDataParallel for a module. It marks the gradients of the module's parameters
/// automatically:
///
///     dptk::libtorch::DistributedDataParallel ddp(group, *net);
///     ddp.begin_step();                  // broadcasts buffers, if any; begin_step(n) counts samples
///     optimizer.zero_grad();
///     torch::nll_loss(net->forward(x), y).backward();   // sends buckets meanwhile
///     ddp.synchronize();                 // the gradients are the average over ranks
///     optimizer.step();
///
/// Options are those of dptk::DistributedDataParallel, but `ready` is always Ready::marked, and `buffers`
/// defaults to the module's buffers. A parameter that backward does not reach is an error on all ranks,
/// unless find_unused_parameters is set. With gradient_as_bucket_view, gradients are tensors over the
/// buckets' memory: setting them to none, or replacing them, costs one copy in the next backward.
///
/// Gradients may be none, replaced, sparse (they become dense), or in another order than the values. Frozen
/// parameters, those that do not require a gradient at construction, are broadcast at construction only and
/// take no part in steps. Backward may run in several threads. Parameters must keep their shape, type and
/// device, and the module must keep its parameters and submodules. Construction is collective, and throws
/// the exceptions of dptk::DistributedDataParallel's constructor.
class DistributedDataParallel : public dptk::DistributedDataParallel {
  public:
    /// Finds the module's parameters, broadcasts rank 0's values and buffers if options.init_sync is set,
    /// and marks gradients as ready for the lifetime of this object. Collective, blocks. The group must
    /// outlive this object.
    DistributedDataParallel(ProcessGroup& group, torch::nn::Module& module,
                            DistributedDataParallelOptions options = {})
        : DistributedDataParallel(group, std::make_unique<detail::ModuleParameters>(module), module,
                                  std::move(options)) {}

  private:
    DistributedDataParallel(ProcessGroup& group, std::unique_ptr<detail::ModuleParameters> parameters,
                            torch::nn::Module& module, DistributedDataParallelOptions options)
        : dptk::DistributedDataParallel(checked(group), ParameterSource(*parameters),
                                        detail::options_for(module, *parameters, options)),
          parameters_(std::move(parameters)) {
        if (options.init_sync) parameters_->broadcast_frozen(group);
        if (options.gradient_as_bucket_view) parameters_->put_gradients_into(reducer());
        hooks_ = std::make_unique<detail::GradientHooks>(*parameters_, reducer());
    }

    [[nodiscard]] static ProcessGroup& checked(ProcessGroup& group) {
        group.refuse_elastic("libtorch::DistributedDataParallel");
        return group;
    }

    std::unique_ptr<detail::ModuleParameters> parameters_;
    std::unique_ptr<detail::GradientHooks> hooks_;
};

}  // namespace libtorch

}  // namespace DPTK_NAMESPACE
