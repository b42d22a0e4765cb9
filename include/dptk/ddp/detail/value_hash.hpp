/// Hash of parameters' values, by which ranks notice that their replicas differ.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/ddp/detail/device_lanes.hpp"
#include "dptk/ddp/detail/model_parameters.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns a hash of the bits of a value, in host or device memory. Values on devices are copied to the host
/// after the work of the lanes' user stream, or of the default stream if `lanes` is null; this blocks.
[[nodiscard]] std::uint64_t value_hash(const ParameterRef& parameter, const DeviceLanes* lanes);

/// Returns the hashes of all values that are kept equal on all ranks, in registration order; 0 for ignored
/// parameters.
[[nodiscard]] std::vector<std::uint64_t> value_hashes(const ModelParameters& parameters,
                                                      const DeviceLanes* lanes);

/// Combines hashes into one of 32 bits, so that a double holds the sum over the ranks exactly.
[[nodiscard]] std::uint32_t short_hash(std::span<const std::uint64_t> hashes);

/// Sent by ranks that have no hash: no short hash has this value.
inline constexpr std::uint64_t no_hash = ~std::uint64_t{0};

/// The first parameter whose values differ, and a text that names it and the ranks that have the same and
/// other values.
struct Drift {
    std::string text;
    std::string parameter;
};

/// Finds the first parameter whose values differ. Ranks for which `compares` is false are left out.
/// Collective, blocks.
[[nodiscard]] Drift find_drift(ProcessGroup& group, const ModelParameters& parameters,
                               const DeviceLanes* lanes, bool compares);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/value_hash.ipp"
#endif
