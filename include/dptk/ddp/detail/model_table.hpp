/// What must be equal on all ranks of a training, as lines of text.
#pragma once

#include <string>
#include <vector>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/ddp/options.hpp"
#include "dptk/ddp/parameter_ref.hpp"

namespace DPTK_NAMESPACE::detail {

/// Which of the parameters the options name among those to ignore. Throws ArgumentError for a name that none
/// has.
[[nodiscard]] std::vector<bool> ignored_parameters(const std::vector<ParameterRef>& parameters,
                                                   const DistributedDataParallelOptions& options);

[[nodiscard]] std::string parameter_line(const ParameterRef& parameter, bool ignored);

[[nodiscard]] std::string model_table(const DistributedDataParallelOptions& options,
                                      const std::vector<ParameterRef>& parameters,
                                      const std::vector<bool>& ignored, const std::vector<Buffer>& buffers);

/// Throws ArgumentError where `now` is not what the parameters were at construction.
void check_unchanged(const std::vector<ParameterRef>& before, const std::vector<ParameterRef>& now);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/model_table.ipp"
#endif
