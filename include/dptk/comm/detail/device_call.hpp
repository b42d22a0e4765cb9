/// Arguments of a collective with several devices per process, as one rank sees it, and their validation.
/// comm/multi_device.hpp has the verbs.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// A call over several devices on one rank, with one input and one output per device.
struct DeviceCall {
    Verb verb;
    std::vector<Buffer> inputs;
    std::vector<Buffer> outputs;
    Reduction reduction = {};
    int root = 0;
    int root_device = 0;
    /// One stream per device. If empty, each device's default stream is used.
    std::vector<StreamRef> streams = {};

    [[nodiscard]] std::size_t devices() const noexcept { return inputs.size(); }

    /// Returns a description of everything that must be the same on all ranks.
    [[nodiscard]] std::string description() const;

    [[nodiscard]] StreamRef stream(std::size_t device) const;

    [[nodiscard]] bool on_devices() const { return inputs[0].on_device(); }

    /// Returns the indices of the buffers' devices, in the order of the buffers.
    [[nodiscard]] std::vector<int> device_indices() const;

    /// Returns the shape and dtype of a sum of inputs before it is rounded.
    [[nodiscard]] Buffer sum_like() const;
};

/// Returns why the call is invalid in a group of `size` ranks; empty if it is valid.
[[nodiscard]] std::string problem_with(const DeviceCall& call, int size);

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/device_call.ipp"
#endif
