/// find_unused_parameters: finds the parameters that no rank uses in a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/ddp/options.hpp"

namespace DPTK_NAMESPACE::detail {

class UnusedParameters {
  public:
    explicit UnusedParameters(const DistributedDataParallelOptions& options)
        : is_enabled_(options.find_unused_parameters), is_graph_static_(options.static_graph) {}

    /// Returns whether exchange() is needed: with find_unused_parameters, and, for a static graph, until a
    /// step with samples has succeeded. The result is equal on all ranks.
    [[nodiscard]] bool must_exchange() const noexcept { return is_enabled_ && !is_settled(); }

    /// Exchanges between the ranks which parameters are used; `arrived` are the parameters that this rank
    /// uses. Collective, blocks.
    void exchange(ProcessGroup& group, std::size_t parameters, const std::vector<std::size_t>& arrived);

    /// Discards the result of a failed step.
    void discard() { used_.clear(); }

    /// Returns whether an earlier step has decided, for a static graph, that no rank uses the parameter.
    [[nodiscard]] bool is_permanently_unused(std::size_t parameter) const noexcept;

    /// Returns whether no rank uses the parameter, so that its gradient is left unchanged.
    [[nodiscard]] bool operator[](std::size_t parameter) const noexcept;

  private:
    /// Returns whether the result is final, which requires a step with samples.
    [[nodiscard]] bool is_settled() const noexcept;

    bool is_enabled_;
    bool is_graph_static_;
    std::vector<std::uint8_t> used_;  // by parameter: 1 if any rank uses it
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/unused_parameters.ipp"
#endif
