/// cuDNN operation graphs and execution plans: an owning class for cuDNN's descriptors, and the selection
/// of the fastest plan.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cuda/context.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

/// One of the descriptors that make up a graph.
class CudnnDescriptor {
  public:
    explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);

    [[nodiscard]] cudnnBackendDescriptor_t get() const noexcept { return descriptor_.get(); }

    template <class Value>
    CudnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                         std::span<const Value> values) {
        check(cudnnBackendSetAttribute(get(), name, type, static_cast<std::int64_t>(values.size()),
                                       values.data()),
              "cudnnBackendSetAttribute");
        return *this;
    }
    CudnnDescriptor& set(cudnnBackendAttributeName_t name, std::span<const std::int64_t> values);
    CudnnDescriptor& set(cudnnBackendAttributeName_t name, std::int64_t value);
    CudnnDescriptor& set(cudnnBackendAttributeName_t name, float value);
    CudnnDescriptor& set(cudnnBackendAttributeName_t name, bool value);
    CudnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnDataType_t value);
    CudnnDescriptor& set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value);

    CudnnDescriptor& finalize();

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
        void operator()(void* descriptor) const noexcept;
    };
    std::unique_ptr<void, Destroy> descriptor_;
};

[[nodiscard]] cudnnDataType_t cudnn_type(DType type) noexcept;

/// Returns a channels-last tensor of a graph; `dims` has the order {n, channels, height, width}. Memory is
/// bound to the tensor by `id`. Virtual tensors, which pass data between two operations, have no memory.
[[nodiscard]] CudnnDescriptor cudnn_tensor(std::int64_t id, DType type,
                                           const std::array<std::int64_t, 4>& dims, bool is_virtual = false);

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
                                         std::span<const CudnnArgument> arguments);

    void run(Context& context, std::span<const CudnnArgument> arguments);

  private:
    static constexpr std::size_t most_candidates = 8;
    static constexpr std::size_t most_scratch = std::size_t{512} << 20;

    explicit CudnnPlan(CudnnDescriptor plan);

    [[nodiscard]] static std::vector<CudnnPlan> candidates(Context& context, const CudnnDescriptor& graph,
                                                           cudnnBackendHeurMode_t mode);

    [[nodiscard]] static bool is_allowed(const Context& context, const CudnnDescriptor& configuration);

    static void add_plan(Context& context, const CudnnDescriptor& configuration,
                         std::vector<CudnnPlan>& plans);

    /// Runs the plan to test it, since some plans fail only at execution.
    [[nodiscard]] bool works(Context& context, std::span<const CudnnArgument> arguments);

    [[nodiscard]] cudnnStatus_t execute(Context& context, std::span<const CudnnArgument> arguments);

    CudnnDescriptor plan_;
};

}  // namespace DPTK_NAMESPACE::nn::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cuda/cudnn_graph.ipp"
#endif
