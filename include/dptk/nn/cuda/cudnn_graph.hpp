/// cuDNN operation graphs and execution plans: an owning class for cuDNN's descriptors, and the selection
/// of the fastest plan.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cuda/context.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

/// One of the descriptors that make up a graph.
class CudnnDescriptor {
  public:
    explicit CudnnDescriptor(cudnnBackendDescriptorType_t type) {
        cudnnBackendDescriptor_t made = nullptr;
        check(cudnnBackendCreateDescriptor(type, &made), "cudnnBackendCreateDescriptor");
        descriptor_.reset(made);
    }

    [[nodiscard]] cudnnBackendDescriptor_t get() const noexcept { return descriptor_.get(); }

    template <class Value>
    CudnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                         std::span<const Value> values) {
        check(cudnnBackendSetAttribute(get(), name, type, static_cast<std::int64_t>(values.size()),
                                       values.data()),
              "cudnnBackendSetAttribute");
        return *this;
    }
    CudnnDescriptor& set(cudnnBackendAttributeName_t name, std::span<const std::int64_t> values) {
        return set(name, CUDNN_TYPE_INT64, values);
    }
    CudnnDescriptor& set(cudnnBackendAttributeName_t name, std::int64_t value) {
        return set(name, std::span<const std::int64_t>(&value, 1));
    }
    CudnnDescriptor& set(cudnnBackendAttributeName_t name, float value) {
        return set(name, CUDNN_TYPE_FLOAT, std::span<const float>(&value, 1));
    }
    CudnnDescriptor& set(cudnnBackendAttributeName_t name, bool value) {
        return set(name, CUDNN_TYPE_BOOLEAN, std::span<const bool>(&value, 1));
    }
    CudnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
        return set(name, CUDNN_TYPE_DATA_TYPE, std::span<const cudnnDataType_t>(&value, 1));
    }
    CudnnDescriptor& set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
        const cudnnBackendDescriptor_t pointer = value.get();
        return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                   std::span<const cudnnBackendDescriptor_t>(&pointer, 1));
    }

    CudnnDescriptor& finalize() {
        check(cudnnBackendFinalize(get()), "cudnnBackendFinalize");
        return *this;
    }

    /// Writes the values of the attribute `name` to `out`, as many as fit. Returns the number of values that
    /// the attribute has.
    template <class Value>
    [[nodiscard]] std::size_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                  std::span<Value> out) const {
        std::int64_t count = 0;
        check(cudnnBackendGetAttribute(get(), name, type, static_cast<std::int64_t>(out.size()), &count,
                                       out.data()),
              "cudnnBackendGetAttribute");
        return static_cast<std::size_t>(count);
    }

  private:
    struct Destroy {
        void operator()(void* descriptor) const noexcept {
            static_cast<void>(cudnnBackendDestroyDescriptor(descriptor));
        }
    };
    std::unique_ptr<void, Destroy> descriptor_;
};

[[nodiscard]] inline cudnnDataType_t cudnn_type(DType type) noexcept {
    return type == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

/// Returns a channels-last tensor of a graph; `dims` has the order {n, channels, height, width}. Memory is
/// bound to the tensor by `id`. Virtual tensors, which pass data between two operations, have no memory.
[[nodiscard]] inline CudnnDescriptor cudnn_tensor(std::int64_t id, DType type,
                                                  const std::array<std::int64_t, 4>& dims,
                                                  bool is_virtual = false) {
    const auto [n, channels, height, width] = dims;
    const std::array<std::int64_t, 4> strides{channels * height * width, 1, width * channels, channels};
    CudnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
        .set(CUDNN_ATTR_TENSOR_DATA_TYPE, cudnn_type(type))
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{16})
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims)
        .set(CUDNN_ATTR_TENSOR_STRIDES, strides)
        .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_virtual);
    tensor.finalize();
    return tensor;
}

/// Memory for a tensor of a graph.
struct CudnnArgument {
    std::int64_t id = 0;
    void* data = nullptr;
};

/// An execution plan of a graph: of the plans that keep the required precision and are deterministic, the
/// fastest. find() runs several plans, each of which overwrites the results in memory.
class CudnnPlan {
  public:
    /// Returns nullopt if cuDNN has no suitable plan.
    static std::optional<CudnnPlan> find(Context& context,
                                         std::span<const cudnnBackendDescriptor_t> operations,
                                         std::span<const CudnnArgument> arguments) {
        CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
        const cudnnHandle_t handle = context.dnn();
        graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations)
            .set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE,
                 std::span<const cudnnHandle_t>(&handle, 1));
        if (cudnnBackendFinalize(graph.get()) != CUDNN_STATUS_SUCCESS) return std::nullopt;
        std::vector<CudnnPlan> plans = candidates(context, graph, CUDNN_HEUR_MODE_A);
        if (plans.empty()) plans = candidates(context, graph, CUDNN_HEUR_MODE_FALLBACK);
        std::erase_if(plans, [&](CudnnPlan& plan) { return !plan.works(context, arguments); });
        if (plans.empty()) return std::nullopt;
        const std::size_t best =
            find_fastest(context, plans.size(), [&](std::size_t i) { plans[i].run(context, arguments); });
        return std::move(plans[best]);
    }

    void run(Context& context, std::span<const CudnnArgument> arguments) {
        check(execute(context, arguments), "cudnnBackendExecute");
    }

  private:
    static constexpr std::size_t most_candidates = 8;
    static constexpr std::size_t most_scratch = std::size_t{512} << 20;

    explicit CudnnPlan(CudnnDescriptor plan) : plan_(std::move(plan)) {}

    [[nodiscard]] static std::vector<CudnnPlan> candidates(Context& context, const CudnnDescriptor& graph,
                                                           cudnnBackendHeurMode_t mode) {
        CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
        heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
            .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE,
                 std::span<const cudnnBackendHeurMode_t>(&mode, 1));
        std::vector<CudnnPlan> plans;
        if (cudnnBackendFinalize(heuristics.get()) != CUDNN_STATUS_SUCCESS) return plans;
        std::vector<CudnnDescriptor> configurations;
        std::vector<cudnnBackendDescriptor_t> pointers;
        for (int i = 0; i < 64; ++i) {
            configurations.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
            pointers.push_back(configurations.back().get());
        }
        const std::size_t found = heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                 std::span<cudnnBackendDescriptor_t>(pointers));
        for (std::size_t i = 0; i < std::min(found, configurations.size()); ++i) {
            if (plans.size() == most_candidates) break;
            if (is_allowed(context, configurations[i])) add_plan(context, configurations[i], plans);
        }
        return plans;
    }

    [[nodiscard]] static bool is_allowed(const Context& context, const CudnnDescriptor& configuration) {
        CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
        cudnnBackendDescriptor_t pointer = engine.get();
        if (configuration.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                              std::span<cudnnBackendDescriptor_t>(&pointer, 1)) == 0)
            return false;
        std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
        const std::size_t count = engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                             std::span<cudnnBackendNumericalNote_t>(notes));
        for (std::size_t i = 0; i < std::min(count, notes.size()); ++i) {
            if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return false;
            if (notes[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) return false;
            const bool rounds = notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE ||
                                notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
            if (rounds && context.precision() == Precision::fp32) return false;
        }
        return true;
    }

    static void add_plan(Context& context, const CudnnDescriptor& configuration,
                         std::vector<CudnnPlan>& plans) {
        CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        const cudnnHandle_t handle = context.dnn();
        plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration)
            .set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
                 std::span<const cudnnHandle_t>(&handle, 1));
        if (cudnnBackendFinalize(plan.get()) != CUDNN_STATUS_SUCCESS) return;
        std::int64_t scratch = 0;
        static_cast<void>(plan.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                   std::span<std::int64_t>(&scratch, 1)));
        const auto bytes = static_cast<std::size_t>(scratch);
        if (bytes > most_scratch) return;
        context.reserve_scratch(bytes);
        plans.push_back(CudnnPlan(std::move(plan)));
    }

    /// Runs the plan to test it, since some plans fail only at execution.
    [[nodiscard]] bool works(Context& context, std::span<const CudnnArgument> arguments) {
        return execute(context, arguments) == CUDNN_STATUS_SUCCESS;
    }

    [[nodiscard]] cudnnStatus_t execute(Context& context, std::span<const CudnnArgument> arguments) {
        std::vector<void*> pointers;
        std::vector<std::int64_t> ids;
        for (const CudnnArgument& argument : arguments) {
            pointers.push_back(argument.data);
            ids.push_back(argument.id);
        }
        void* scratch = context.scratch().data();
        CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
        pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)
            .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::span<void* const>(pointers))
            .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, std::span<void* const>(&scratch, 1));
        if (const cudnnStatus_t status = cudnnBackendFinalize(pack.get()); status != CUDNN_STATUS_SUCCESS)
            return status;
        return cudnnBackendExecute(context.dnn(), plan_.get(), pack.get());
    }

    CudnnDescriptor plan_;
};

}  // namespace DPTK_NAMESPACE::nn::cuda
