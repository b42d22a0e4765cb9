/// NetworkComputation, what the versions of TrainerComputation for networks in host memory and on GPUs have
/// in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/nn/agree_on_layouts.hpp"
#include "dptk/nn/network.hpp"

namespace DPTK_NAMESPACE::detail {

template <nn::NetworkBackend Backend>
class NetworkComputation {
  public:
    explicit NetworkComputation(nn::Network<Backend>& net) : net_(net) {}

    static void require_usable(const ParameterRef& /*parameter*/) noexcept {}

    /// Prepares the network for training together with the other ranks. Collective.
    void join(ProcessGroup& group) {
        nn::agree_on_layouts(group, net_);
        if (group.size() > 1) net_.set_group(group, {.weighs_by_samples = true});
    }

    void set_frozen(std::span<const std::size_t> parameters) { net_.set_frozen(parameters); }

    [[nodiscard]] bool has_buffers() const { return !net_.graph().buffers().empty(); }

    /// Returns whether all ranks must compute each step, because batch norms wait for those without samples.
    [[nodiscard]] bool is_synchronized() const { return net_.graph().has_synchronized_batch_norms(); }

    [[nodiscard]] nn::Mode mode() const noexcept { return net_.mode(); }

    void set_mode(nn::Mode mode) noexcept { net_.set_mode(mode); }

    /// Sets the number on which the elements depend that dropout drops in the next pass.
    void set_pass(std::int64_t pass) noexcept { net_.set_training_passes(pass); }

    /// Returns what ModelState saves.
    [[nodiscard]] nn::Network<Backend>& model() noexcept { return net_; }

  protected:
    nn::Network<Backend>& net_;
};

}  // namespace DPTK_NAMESPACE::detail
