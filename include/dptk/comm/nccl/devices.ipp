#pragma once

#include "dptk/comm/nccl/devices.hpp"

#include <cstddef>
#include <exception>
#include <numeric>
#include <optional>
#include <utility>

#include "dptk/comm/detail/device_call.hpp"
#include "dptk/comm/detail/joint_work.hpp"
#include "dptk/comm/engine/active_call.hpp"
#include "dptk/comm/engine/stream_calls.hpp"
#include "dptk/comm/nccl/comm.hpp"
#include "dptk/comm/nccl/peer_info.hpp"
#include "dptk/comm/nccl/types.hpp"
#include "dptk/comm/nccl/work.hpp"
#include "dptk/comm/ranges.hpp"
#include "dptk/comm/staged/devices.hpp"
#include "dptk/core/cuda/stream.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

class NcclDevices final : public DeviceGroup {
  public:
    /// See connect_nccl_devices().
    NcclDevices(Engine& host, const std::vector<int>& devices) : host_(host), devices_(devices) {
        const std::shared_ptr<ControlPlane>& control = host.control();
        std::vector<int> ranks(static_cast<std::size_t>(host.size()));
        std::iota(ranks.begin(), ranks.end(), 0);
        ChannelIdentity identity = host.next_identity(ranks, std::nullopt);
        const std::vector<NcclPeerInfo> peers = exchange_peer_info();
        check_nccl_peers(peers, SharedGpus::refused);
        std::vector<NcclCommOptions> each;
        for (std::size_t i = 0; i < devices.size(); ++i) {
            each.push_back({.rank = rank_of(host.rank(), static_cast<int>(i)),
                            .size = static_cast<int>(peers.size()),
                            .job_rank = control->rank(),
                            .device = devices[i],
                            .timeout = identity.timeout,
                            .job_state = control->job_state()});
        }
        comms_ = NcclComm::connect(each, peers[0].id);
        tracker_ =
            std::make_shared<CallTracker>(std::move(identity), CallTracker::Calls::collectives, call_reader);
        control->open(tracker_);
        calls_ = StreamCalls::make(tracker_);
        fallback_ = connect_staged_devices(host, devices);
    }

    ~NcclDevices() override {
        const std::shared_ptr<ControlPlane>& control = host_.control();
        if (std::uncaught_exceptions() > uncaught_exceptions_ && !control->agreed_errors().is_unwinding()) {
            control->job_state()->fail(
                text("rank ", control->rank(), " left its process group while an exception was unwinding"));
        }
        const auto attempt = [&](auto&& step) {
            try {
                step();
            } catch (const std::exception& error) {
                log(LogLevel::error, host_.control()->rank(),
                    text("while a group over several devices closed: ", error.what()));
            }
        };
        attempt([&] { calls_->finish(); });
        attempt([&] { NcclComm::close_together(comms_); });
        host_.control()->close(tracker_);
    }

    NcclDevices(const NcclDevices&) = delete;
    NcclDevices& operator=(const NcclDevices&) = delete;

    void run(const DeviceCall& call) override {
        if (reduces(call.verb) && (!nccl_reduces(call.inputs[0], call.reduction) || call.reduction.weight))
            return fallback_->run(call);
        const Collective packed{
            .verb = call.verb, .input = call.inputs[0], .reduction = call.reduction, .root = call.root};
        static_cast<void>(calls_->add(PackedCall(packed), nullptr, [&] { return enqueue(call); }));
    }

    void finish() override {
        calls_->finish();
        // Read before this rank's error, which is always stored before it fails the job.
        const bool job_has_failed = host_.control()->job_state()->failed();
        comms_[0]->rethrow_failure();
        if (job_has_failed) host_.control()->job_state()->check();
    }

  private:
    [[nodiscard]] int rank_of(int process, int device) const {
        return process * static_cast<int>(devices_.size()) + device;
    }

    [[nodiscard]] std::vector<NcclPeerInfo> exchange_peer_info() {
        std::vector<NcclPeerInfo> own;
        for (std::size_t i = 0; i < devices_.size(); ++i) {
            own.push_back(make_nccl_peer_info(rank_of(host_.rank(), static_cast<int>(i)),
                                              host_.control()->rank(), devices_[i]));
        }
        std::vector<NcclPeerInfo> peers(own.size() * static_cast<std::size_t>(host_.size()));
        host_.run({.verb = Verb::all_gather, .input = buffer_of(own), .output = buffer_of(peers)});
        return peers;
    }

    [[nodiscard]] std::shared_ptr<WorkState> enqueue(const DeviceCall& call) {
        for (std::size_t i = 0; i < comms_.size(); ++i) {
            const cuda::DeviceScope on(devices_[i]);
            cuda::detail::refuse_capture(host_.rank(), call.stream(i));
        }
        NcclComm::launch_together(verb_name(call.verb).data(), comms_,
                                  [&](std::size_t i, ncclComm_t comm, NcclGroup& group) {
                                      if (call.inputs[i].bytes() + call.outputs[i].bytes() > 0)
                                          group.add(issue(call, i, comm));
                                  });
        std::vector<std::shared_ptr<WorkState>> works;
        for (std::size_t i = 0; i < comms_.size(); ++i) {
            const cuda::DeviceScope on(devices_[i]);
            works.push_back(std::make_shared<NcclWork>(comms_[i], cuda::Event(call.stream(i))));
        }
        return join_works(std::move(works));
    }

    [[nodiscard]] ncclResult_t issue(const DeviceCall& call, std::size_t i, ncclComm_t comm) const {
        const Buffer& in = call.inputs[i];
        const Buffer& out = call.outputs[i];
        const cudaStream_t stream = call.stream(i).get();
        const int root = rank_of(call.root, call.root_device);
        if (call.verb == Verb::broadcast)
            return ncclBroadcast(in.data, out.data, in.bytes(), ncclUint8, root, comm, stream);
        if (call.verb == Verb::all_gather)
            return ncclAllGather(in.data, out.data, in.bytes(), ncclUint8, comm, stream);
        const NcclElements elements = *nccl_numbers(in);
        const ncclRedOp_t op = *nccl_op(in.dtype, call.reduction);
        if (call.verb == Verb::all_reduce)
            return ncclAllReduce(in.data, out.data, elements.count, elements.type, op, comm, stream);
        if (call.verb == Verb::reduce)
            return ncclReduce(in.data, out.data, elements.count, elements.type, op, root, comm, stream);
        return ncclReduceScatter(in.data, out.data, nccl_numbers(out)->count, elements.type, op, comm,
                                 stream);
    }

    Engine& host_;
    std::vector<int> devices_;
    std::unique_ptr<DeviceGroup> fallback_;
    std::vector<std::shared_ptr<NcclComm>> comms_;
    std::shared_ptr<CallTracker> tracker_;
    std::shared_ptr<StreamCalls> calls_;
    int uncaught_exceptions_ = std::uncaught_exceptions();
};

DPTK_INLINE std::unique_ptr<DeviceGroup> connect_nccl_devices(Engine& host, const std::vector<int>& devices) {
    std::unique_ptr<DeviceGroup> group;
    host.control()->fail_job_on_error([&] { group = std::make_unique<NcclDevices>(host, devices); });
    return group;
}

}  // namespace DPTK_NAMESPACE::detail
