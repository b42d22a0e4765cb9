/// A collective of processes that work with several devices each, as one rank sees it, and what can be wrong
/// with it. comm/multi_device.hpp has the verbs.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// A call over devices, on one rank: one input and one output for each.
struct DeviceCall {
    Verb verb;
    std::vector<Buffer> inputs;
    std::vector<Buffer> outputs;
    Reduction reduction = {};
    int root = 0;
    int root_device = 0;
    /// Of each device, where their memory is their own; default streams where there are none.
    std::vector<StreamRef> streams = {};

    [[nodiscard]] std::size_t devices() const noexcept { return inputs.size(); }

    /// What must be the same on all ranks.
    [[nodiscard]] std::string description() const;

    [[nodiscard]] StreamRef stream(std::size_t device) const;

    [[nodiscard]] bool on_devices() const { return inputs[0].on_device(); }

    /// Those on which the buffers lie, in their order.
    [[nodiscard]] std::vector<int> device_indices() const;

    /// What a combination of inputs looks like, before it is rounded.
    [[nodiscard]] Buffer sum_like() const;
};

/// Why the call cannot be in a group of `size`; empty where it can.
[[nodiscard]] std::string problem_with(const DeviceCall& call, int size);

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/device_call.ipp"
#endif
