/// The parameters of a model in training: their current addresses, and which of them are ignored.
#pragma once

#include <cstddef>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/ddp/options.hpp"
#include "dptk/ddp/parameter_source.hpp"

namespace DPTK_NAMESPACE::detail {

class ModelParameters {
  public:
    explicit ModelParameters(ParameterSource source);

    /// Finds the parameters for the first time. Throws ArgumentError if parameters are unusable, or if the
    /// options ignore a name that no parameter has.
    void find(const DistributedDataParallelOptions& options = {});

    /// Re-reads all addresses. Throws ArgumentError if the parameters' number, or the size, type or device
    /// of a parameter, has changed.
    void read_addresses();

    /// Sets the address of a lazy gradient for this step.
    void set_gradient(std::size_t i, void* gradient) noexcept { refs_[i].gradient = gradient; }

    /// Asks for the address of a lazy gradient if it is not known yet. Throws what the program's own code
    /// throws.
    void find_gradient(std::size_t i, IfMissing if_missing);

    /// Broadcasts the values of rank `root`, except those of ignored parameters. Values on devices are sent
    /// after the work of `stream`. Collective, blocks.
    void broadcast_values(ProcessGroup& group, int root, StreamRef stream = {});

    /// Runs a collective on values or gradients until it is complete. In device memory, only waiting shows
    /// whether it has failed.
    static void run(ProcessGroup& group, const Collective& call);

    /// Returns the parameters in registration order.
    [[nodiscard]] const std::vector<ParameterRef>& refs() const noexcept { return refs_; }
    [[nodiscard]] const std::vector<bool>& ignored() const noexcept { return ignored_; }
    [[nodiscard]] std::size_t size() const noexcept { return refs_.size(); }
    [[nodiscard]] const ParameterRef& operator[](std::size_t i) const noexcept { return refs_[i]; }

  private:
    ParameterSource source_;
    std::vector<ParameterRef> refs_;
    std::vector<bool> ignored_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/model_parameters.ipp"
#endif
