/// Hash of parameters' values, by which ranks notice that their replicas differ.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/ddp/detail/model_parameters.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns a hash of the bits of a value, in host or device memory. Values on devices are copied to the host,
/// which blocks.
[[nodiscard]] std::uint64_t value_hash(const ParameterRef& parameter);

/// Returns the hashes of all values that are kept equal on all ranks, in registration order; 0 for ignored
/// parameters.
[[nodiscard]] std::vector<std::uint64_t> value_hashes(const ModelParameters& parameters);

/// Combines hashes into one of 40 bits, of which a double holds sums exactly.
[[nodiscard]] std::uint64_t short_hash(std::span<const std::uint64_t> hashes);

/// Returns a text that names the first parameter whose values differ, and the ranks that have the same and
/// other values. Returns an empty text if no parameter differs. Collective, blocks.
[[nodiscard]] std::string describe_drift(ProcessGroup& group, const ModelParameters& parameters);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/value_hash.ipp"
#endif
