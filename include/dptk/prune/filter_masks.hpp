/// FilterMasks, the masks of a plan for a training loop, which are applied after each step.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/network.hpp"
#include "dptk/prune/prune.hpp"

namespace DPTK_NAMESPACE::nn {

/// Keeps the outputs of pruned channels 0 while a network is trained, as apply_masks() does, but without a
/// conversion of layouts in each step: it has a mask for each parameter that is pruned, of the same size, in
/// the parameter's layout. On a GPU, apply() calls apply_masks().
template <class Backend>
class FilterMasks {
  public:
    /// Applies the masks, and sets the running means of pruned channels to 0. The network must outlive this
    /// object, and its parameters must keep their layout. Not collective. Throws ArgumentError if
    /// the plan is not of the network's graph.
    FilterMasks(Network<Backend>& net, PruningPlan plan) : net_(&net), plan_(std::move(plan)) {
        apply_masks(net, plan_);
        if constexpr (is_on_host) {
            const std::vector<detail::KeptElements> kept = detail::kept_parameters(net.graph(), plan_);
            net.for_each_parameter([&](const ParameterRef& parameter) {
                const std::size_t i = masks_.size();
                masks_.push_back(kept[i].drops_rows() ? mask_of(i, kept[i], parameter.count)
                                                      : std::vector<Scalar>());
            });
        }
    }

    /// Sets the pruned elements of the parameters to 0. Call it after each step of the optimizer, whose
    /// momentum and weight decay would change them. Running means stay 0 by themselves. Not collective.
    void apply() {
        if constexpr (is_on_host) {
            auto mask = masks_.begin();
            net_->for_each_parameter([&](const ParameterRef& parameter) {
                const std::span<Scalar> values = parameter.template values<Scalar>();
                for (std::size_t i = 0; i < mask->size(); ++i)
                    values[i] = (*mask)[i] != 0 ? values[i] : Scalar{0};
                ++mask;
            });
        } else {
            apply_masks(*net_, plan_);
        }
    }

    /// Returns the plan.
    [[nodiscard]] const PruningPlan& plan() const noexcept { return plan_; }

  private:
    using Scalar = typename Network<Backend>::Scalar;
    static constexpr bool is_on_host = std::same_as<typename Backend::Tensor, dptk::Tensor<Scalar>>;

    [[nodiscard]] std::vector<Scalar> mask_of(std::size_t i, const detail::KeptElements& kept,
                                              std::size_t count) {
        std::vector<Scalar> row_major(element_count(kept.shape), Scalar{1}), mask(count);
        kept.zero_dropped_rows(std::as_writable_bytes(std::span(row_major)));
        net_->from_row_major(i, row_major, mask);
        return mask;
    }

    Network<Backend>* net_;
    PruningPlan plan_;
    /// By parameter, in its layout: 1, or 0 for an element that is pruned. Empty if none is.
    std::vector<std::vector<Scalar>> masks_;
};

}  // namespace DPTK_NAMESPACE::nn
