/// find_unused_parameters: which parameters take part in a step on no rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/ddp/options.hpp"

namespace dptk::detail {

class UnusedParameters {
  public:
    explicit UnusedParameters(const DistributedDataParallelOptions& options)
        : looks_(options.find_unused_parameters), is_static_(options.static_graph) {}

    /// `arrived`: those that take part here. Where the graph is static, asks until there has been a step with
    /// samples. Collective where the options ask for it, and blocks.
    void exchange(ProcessGroup& group, std::size_t parameters, const std::vector<std::size_t>& arrived) {
        if (!looks_ || is_settled()) return;
        used_.assign(parameters, 0);
        for (const std::size_t i : arrived) used_[i] = 1;
        group.all_reduce(used_, ReduceOp::max);
    }

    /// A step that has failed tells nothing.
    void forget() { used_.clear(); }

    /// Whether an earlier step has decided that the parameter takes part nowhere.
    [[nodiscard]] bool is_out_for_good(std::size_t parameter) const noexcept {
        return is_settled() && used_[parameter] == 0;
    }

    /// Whether the parameter takes part nowhere, and its gradient stays as it is.
    [[nodiscard]] bool operator[](std::size_t parameter) const noexcept {
        return looks_ && parameter < used_.size() && used_[parameter] == 0;
    }

  private:
    /// A step without samples settles nothing.
    [[nodiscard]] bool is_settled() const noexcept {
        return looks_ && is_static_ && std::ranges::find(used_, 1) != used_.end();
    }

    bool looks_;
    bool is_static_;
    std::vector<std::uint8_t> used_;  // on any rank
};

}  // namespace dptk::detail
