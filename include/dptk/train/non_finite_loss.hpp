/// NonFiniteLossError, which a Trainer throws when the loss is infinite or not a number, and where this
/// began.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/parameter_ref.hpp"

namespace DPTK_NAMESPACE {

/// The loss of a step was infinite or not a number. All ranks throw it; rank() and step() tell where this
/// began, for models in host memory.
class DPTK_EXPORT NonFiniteLossError : public Error {
  public:
    /// Makes an error with this text, context and details.
    NonFiniteLossError(const std::string& message, ErrorContext context, std::string details)
        : Error(message, std::move(context)), details_(std::move(details)) {}

    /// Returns lines about the step in which this began, on the rank where it began: the indices of the
    /// batch's samples, and the norms of each parameter's values and gradient after backward. Empty for
    /// networks on a GPU.
    [[nodiscard]] const std::string& details() const noexcept { return details_; }

  private:
    std::string details_;
};

namespace detail {

/// The first step of this rank whose loss was not finite.
struct NonFiniteLoss {
    std::int64_t step = 0;     ///< Counted from the beginning of the run.
    std::string summary = {};  ///< Completes "the loss is no longer finite: ".
    std::string details = {};  ///< See NonFiniteLossError::details().
};

/// Describes a step whose loss is not finite. `parameters` are in host memory.
[[nodiscard]] NonFiniteLoss describe_non_finite_loss(int rank, int epoch, std::int64_t step,
                                                     std::span<const std::size_t> samples,
                                                     std::span<const ParameterRef> parameters);

/// Throws NonFiniteLossError on all ranks. `own` is null if this rank has not seen such a step. `epoch` is
/// counted from 0. Collective.
[[noreturn]] void throw_non_finite_loss(ProcessGroup& group, const NonFiniteLoss* own, int epoch, double lr);

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/train/non_finite_loss.ipp"
#endif
