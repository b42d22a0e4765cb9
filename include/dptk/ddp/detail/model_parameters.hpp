/// The parameters of a model that is being trained: where they are, and which of them take no part.
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

    /// For the first time. Throws ArgumentError for parameters that are unusable, and for a name to ignore
    /// that none has.
    void find(const DistributedDataParallelOptions& options = {});

    /// Anew. Throws ArgumentError where they are not what they were.
    void read_addresses();

    /// Of a late gradient, in this step.
    void set_gradient(std::size_t i, void* gradient) noexcept { refs_[i].gradient = gradient; }

    /// Asks for a late gradient that is not known yet. Throws what the program's own code does.
    void find_gradient(std::size_t i, IfMissing if_missing);

    /// Gives all ranks the values of rank `root`, but of parameters that are ignored. Collective, blocks.
    /// Those on a device behind what `stream` has been given, and done when this returns.
    void broadcast_values(ProcessGroup& group, int root, StreamRef stream = {});

    /// A call on values or gradients, until it is done: on a device, too, where nothing but a wait tells what
    /// has failed.
    static void run(ProcessGroup& group, const Collective& call);

    /// In registration order.
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
