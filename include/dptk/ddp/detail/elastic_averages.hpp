/// ElasticAverages: what averages the gradients of an ElasticState.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/parameter_ref.hpp"

namespace DPTK_NAMESPACE::detail {

class ElasticAverages {
  public:
    ElasticAverages() = default;
    virtual ~ElasticAverages() = default;
    ElasticAverages(const ElasticAverages&) = delete;
    ElasticAverages& operator=(const ElasticAverages&) = delete;

    /// Returns the number of steps that have been synchronized.
    [[nodiscard]] virtual std::size_t steps() = 0;

    /// Returns the parameters with their current addresses, also during a step.
    [[nodiscard]] virtual std::vector<ParameterRef> find_parameters() = 0;

    [[nodiscard]] virtual std::vector<std::byte> copy_buffers() = 0;
    virtual void restore_buffers(std::span<const std::byte> elements) = 0;

    /// Notes that a step is complete. Returns whether it may have changed values.
    virtual bool commit() { return true; }

    /// Continues over a group that was formed again, with the values and buffers of rank `root`, and with the
    /// optimizer's state if this object has it. `has_values` is whether the values of rank `root` are those
    /// at the end of its last step; on other ranks it is ignored. Collective.
    virtual void continue_over(ProcessGroup& group, int root, bool has_values) = 0;

    /// Notes that all ranks have continued.
    virtual void accept() {}
};

}  // namespace DPTK_NAMESPACE::detail
