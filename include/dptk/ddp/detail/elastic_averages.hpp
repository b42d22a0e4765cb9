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

    /// A step of rank `root` that the ranks may continue from.
    struct Point {
        int root = 0;
        bool is_reached = false;    ///< Whether this rank has completed it, or later ones.
        bool keeps_values = false;  ///< Whether the values of this rank are those after its last step.
    };

    /// Returns whether the ranks together have the state after the last step of rank `point.root`, with the
    /// same result on all ranks. Collective. Throws MismatchError on all ranks if their models differ.
    [[nodiscard]] virtual bool can_continue(ProcessGroup& /*group*/, const Point& /*point*/) { return true; }

    /// Continues over a group that was formed again, with the values, the buffers and the optimizer's state
    /// that rank `root` had after its last step, for which can_continue() has returned true. Collective.
    virtual void continue_over(ProcessGroup& group, int root) = 0;

    /// Notes that continue_over() has failed on this rank, and that its values are those before it again.
    virtual void roll_back() {}

    /// Notes that all ranks have continued.
    virtual void accept() {}
};

}  // namespace DPTK_NAMESPACE::detail
