/// Consistency check: describes, as lines of text, the parameters and options that must be equal on all
/// ranks.
#pragma once

#include <string>
#include <vector>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/ddp/options.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns, for each parameter, whether the options ignore it. Throws ArgumentError if the options ignore a
/// name that no parameter has.
[[nodiscard]] std::vector<bool> ignored_parameters(const std::vector<ParameterRef>& parameters,
                                                   const DistributedDataParallelOptions& options);

[[nodiscard]] std::string parameter_line(const ParameterRef& parameter, bool ignored);

/// Returns every how many steps the options, or DPTK_DEBUG, compare the parameters' values; 0 if never.
[[nodiscard]] std::size_t verification_interval(const DistributedDataParallelOptions& options);

[[nodiscard]] std::string option_lines(const DistributedDataParallelOptions& options);

[[nodiscard]] std::string buffer_lines(const std::vector<Buffer>& buffers);

/// Describes which parameters and buffers share a device. Device numbers may differ between ranks.
[[nodiscard]] std::string device_lines(const std::vector<ParameterRef>& parameters,
                                       const std::vector<Buffer>& buffers);

/// Throws ArgumentError if the parameters' number, or the size, type, device, shape or layout of a parameter,
/// has changed from `before`, at construction, to `now`.
void check_unchanged(const std::vector<ParameterRef>& before, const std::vector<ParameterRef>& now);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/model_table.ipp"
#endif
