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

    /// Notes that a step is complete.
    virtual void commit() {}

    /// Returns whether the ranks together have the state of rank `root` after its last step, with the same
    /// result on all ranks. Collective.
    [[nodiscard]] virtual bool can_continue(ProcessGroup& /*group*/, int /*root*/) { return true; }

    /// Continues over a group that was formed again, with the values, the buffers and the optimizer's state
    /// that rank `root` had after its last step. `keeps_values` is whether the values of this rank are those
    /// in any case. can_continue() was called with the same rank before. Collective.
    virtual void continue_over(ProcessGroup& group, int root, bool keeps_values) = 0;

    /// Notes that all ranks have continued.
    virtual void accept() {}
};

}  // namespace DPTK_NAMESPACE::detail
