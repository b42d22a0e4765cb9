#pragma once

#include "dptk/comm/staged/devices.hpp"

#include <cstddef>
#include <utility>

#include "dptk/comm/detail/backoff.hpp"
#include "dptk/comm/detail/devices_on_host.hpp"
#include "dptk/comm/engine/engine_verbs.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/core/cuda/copy.hpp"
#include "dptk/core/cuda/device.hpp"
#include "dptk/core/cuda/event.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/cuda/stream.hpp"

namespace DPTK_NAMESPACE::detail {

class StagedDevices final : public DeviceGroup {
  public:
    /// Takes ownership of an engine that no other object uses.
    explicit StagedDevices(EngineOwner host) : host_(std::move(host)) {}

    void run(const DeviceCall& call) override {
        HostBuffers inputs(call.inputs);
        // The input of an all_gather, or the output of a reduce_scatter, may be a part of the other buffer.
        const bool in_place =
            call.inputs[0].data == call.outputs[0].data && call.inputs[0].count == call.outputs[0].count;
        HostBuffers outputs(in_place ? std::vector<Buffer>() : call.outputs);
        copy(inputs.buffers(), call.inputs, call);
        DeviceCall host_call = call;
        host_call.inputs = inputs.buffers();
        host_call.outputs = in_place ? inputs.buffers() : outputs.buffers();
        host_call.streams.clear();
        EngineVerbs group(*host_);
        run_devices_on_host(group, host_call);
        if (call.verb != Verb::reduce) return copy(call.outputs, host_call.outputs, call);
        if (host_->rank() != call.root) return;
        const auto device = static_cast<std::size_t>(call.root_device);
        copy_one(call.outputs[device], host_call.outputs[device], call.stream(device));
        await_one(call.outputs[device].device.index, call.stream(device));
    }

  private:
    /// Pinned host memory for copies of device buffers.
    class HostBuffers {
      public:
        explicit HostBuffers(const std::vector<Buffer>& like) {
            for (const Buffer& buffer : like) {
                memory_.emplace_back(buffer.bytes());
                buffers_.push_back(buffer.at(memory_.back().data()));
                buffers_.back().device = {};
            }
        }

        [[nodiscard]] const std::vector<Buffer>& buffers() const noexcept { return buffers_; }

      private:
        std::vector<cuda::PinnedBuffer<std::byte>> memory_;
        std::vector<Buffer> buffers_;
    };

    void copy_one(const Buffer& to, const Buffer& from, StreamRef stream) const {
        const cuda::DeviceScope on(to.on_device() ? to.device.index : from.device.index);
        cuda::detail::refuse_capture(host_->rank(), stream);
        cuda::detail::copy_bytes(to.data, from.data, from.bytes(), stream);
    }

    /// Copies on all devices concurrently. Blocks until all copies have ended.
    void copy(const std::vector<Buffer>& to, const std::vector<Buffer>& from, const DeviceCall& call) const {
        for (std::size_t i = 0; i < to.size(); ++i) copy_one(to[i], from[i], call.stream(i));
        for (std::size_t i = 0; i < to.size(); ++i) await_one(call.inputs[i].device.index, call.stream(i));
    }

    void await_one(int device, StreamRef stream) const {
        const cuda::DeviceScope on(device);
        const cuda::Event event(stream);
        Backoff pause;
        while (!event.ready()) {
            host_->control()->job_state()->check();
            pause();
        }
    }

    EngineOwner host_;
};

DPTK_INLINE std::unique_ptr<DeviceGroup> connect_staged_devices(Engine& host, const std::vector<int>&) {
    EngineOwner copy = host.duplicate();
    if (!copy)
        throw ArgumentError(
            "the transport " + host.backend() +
            " has no duplicate(), which is required to stage the memory of several devices through the host");
    return std::make_unique<StagedDevices>(std::move(copy));
}

}  // namespace DPTK_NAMESPACE::detail
