#pragma once

#include "dptk/comm/staged/devices.hpp"

#include <cstddef>
#include <utility>

#include "dptk/comm/detail/devices_on_host.hpp"
#include "dptk/comm/detail/pause.hpp"
#include "dptk/comm/detail/routed_channel.hpp"
#include "dptk/core/cuda/copy.hpp"
#include "dptk/core/cuda/device.hpp"
#include "dptk/core/cuda/event.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/cuda/stream.hpp"

namespace DPTK_NAMESPACE::detail {

class StagedDevices final : public DeviceGroup {
  public:
    /// Over a channel of its own.
    explicit StagedDevices(std::unique_ptr<Channel> host) : host_(std::move(host)) {}

    void run(const DeviceCall& call) override {
        Mirror inputs(call.inputs);
        const bool in_place = call.inputs[0].data == call.outputs[0].data;
        Mirror outputs(in_place ? std::vector<Buffer>() : call.outputs);
        copy(inputs.buffers(), call.inputs, call);
        DeviceCall here = call;
        here.inputs = inputs.buffers();
        here.outputs = in_place ? inputs.buffers() : outputs.buffers();
        here.streams.clear();
        ChannelVerbs group(*host_);
        run_devices_on_host(group, here);
        if (call.verb != Verb::reduce) return copy(call.outputs, here.outputs, call);
        if (host_->rank() != call.root) return;
        const auto device = static_cast<std::size_t>(call.root_device);
        copy_one(call.outputs[device], here.outputs[device], call.stream(device));
        await_one(call.outputs[device].device.index, call.stream(device));
    }

  private:
    /// Host memory for buffers like those.
    class Mirror {
      public:
        explicit Mirror(const std::vector<Buffer>& like) {
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

    /// All devices copy at once; the host waits for them.
    void copy(const std::vector<Buffer>& to, const std::vector<Buffer>& from, const DeviceCall& call) const {
        for (std::size_t i = 0; i < to.size(); ++i) copy_one(to[i], from[i], call.stream(i));
        for (std::size_t i = 0; i < to.size(); ++i) await_one(call.inputs[i].device.index, call.stream(i));
    }

    void await_one(int device, StreamRef stream) const {
        const cuda::DeviceScope on(device);
        const cuda::Event event(stream);
        Pause pause;
        while (!event.ready()) {
            host_->control().job_state()->check();
            pause();
        }
    }

    std::unique_ptr<Channel> host_;
};

DPTK_INLINE std::unique_ptr<DeviceGroup> connect_staged_devices(Channel& host, const std::vector<int>&) {
    std::unique_ptr<Channel> copy = host.duplicate();
    if (!copy)
        throw ArgumentError("the transport " + host.backend() +
                            " has no duplicate(), and so no device memory");
    return std::make_unique<StagedDevices>(std::move(copy));
}

}  // namespace DPTK_NAMESPACE::detail
