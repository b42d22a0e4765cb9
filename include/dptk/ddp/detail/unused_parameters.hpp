/// find_unused_parameters: which parameters take part in a step on no rank.
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
        : looks_(options.find_unused_parameters), is_static_(options.static_graph) {}

    /// `arrived`: those that take part here. Where the graph is static, asks until there has been a step with
    /// samples. Collective where the options ask for it, and blocks.
    void exchange(ProcessGroup& group, std::size_t parameters, const std::vector<std::size_t>& arrived);

    /// A step that has failed tells nothing.
    void forget() { used_.clear(); }

    /// Whether an earlier step has decided that the parameter takes part nowhere.
    [[nodiscard]] bool is_out_for_good(std::size_t parameter) const noexcept;

    /// Whether the parameter takes part nowhere, and its gradient stays as it is.
    [[nodiscard]] bool operator[](std::size_t parameter) const noexcept;

  private:
    /// A step without samples settles nothing.
    [[nodiscard]] bool is_settled() const noexcept;

    bool looks_;
    bool is_static_;
    std::vector<std::uint8_t> used_;  // on any rank
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/unused_parameters.ipp"
#endif
