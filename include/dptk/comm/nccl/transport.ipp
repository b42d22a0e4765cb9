#pragma once

#include "dptk/comm/nccl/transport.hpp"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <utility>

#include "dptk/comm/nccl/memory.hpp"
#include "dptk/control/launch/job_request.hpp"
#include "dptk/control/net/host.hpp"
#include "dptk/core/cuda/event.hpp"
#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE NcclTransport::NcclTransport(const NcclOptions& options)
    : NcclTransport(checked(options),
                    [&](const detail::NcclPeerInfo& own) { return exchange_in_store(own); }) {}

DPTK_INLINE NcclTransport::NcclTransport(NcclOptions options, const PeerInfoExchange& exchange)
    : options_(with_defaults(std::move(options))) {
    if (share_gpu()) detail::set_unique_host_id();
    detail::NcclPeerInfo own = own_info();
    detail::record_problem(own, [&] { make_own_stream(); });
    set_peers(exchange(own));
    comm_ = detail::NcclComm::connect(comm_options(), peers_[0].id);
    calls_.emplace(comm_);
}

DPTK_INLINE NcclTransport::NcclTransport(ncclComm_t comm, NcclOwner owner, NcclOptions options)
    : options_(with_defaults(described_by(comm, std::move(options)))),
      comm_(detail::NcclComm::wrap(comm, comm_options(), owner)) {
    make_own_stream();
    calls_.emplace(comm_);
    set_peers(exchange_peer_info(all_ranks(), own_info()));
}

DPTK_INLINE int NcclTransport::local_rank() const {
    return detail::local_place(hosts_, rank()).rank;
}

DPTK_INLINE int NcclTransport::local_size() const {
    return detail::local_place(hosts_, rank()).size;
}

DPTK_INLINE void NcclTransport::rethrow_failure() {
    comm_->rethrow_failure();
}

DPTK_INLINE std::shared_ptr<WorkState> NcclTransport::enqueue(const Collective& call) {
    const cuda::DeviceScope on(device());
    if (call.verb == Verb::barrier) return start_barrier();
    if (!call.shared_shape().on_device()) return run_on_host_memory(call);
    check_device(call.input);
    check_device(call.output);
    const bool is_captured = cuda::is_capturing(call.stream);
    if (is_captured && !detail::NcclCalls::is_all_on_gpu(call))
        cuda::detail::refuse_capture(rank(), call.stream);
    calls_->issue(call, call.stream);
    if (is_captured) {
        if (!graph_watch_) graph_watch_ = detail::NcclWatch::start(comm_);
        return std::make_shared<detail::CapturedWork>();
    }
    return calls_->work_after(call.stream);
}

DPTK_INLINE std::shared_ptr<WorkState> NcclTransport::enqueue_beside(const Collective& call) {
    if (call.verb == Verb::barrier || !call.shared_shape().on_device()) return enqueue(call);
    const cuda::DeviceScope on(device());
    check_device(call.shared_shape());
    cuda::detail::refuse_capture(rank(), call.stream);
    cuda::Event(call.stream).order_before(own_stream());
    Collective beside = call;
    beside.stream = own_stream();
    return enqueue(beside);
}

DPTK_INLINE void NcclTransport::follow(const Message& message) {
    if (!message.buffer.on_device()) return;
    const cuda::DeviceScope on(device());
    check_device(message.buffer);
    cuda::detail::refuse_capture(rank(), message.stream);
    cuda::Event(message.stream).order_before(own_stream());
}

DPTK_INLINE std::shared_ptr<WorkState> NcclTransport::enqueue_together(std::span<const Message> messages) {
    const cuda::DeviceScope on(device());
    std::vector<Message> on_device(messages.begin(), messages.end());
    std::deque<detail::StreamMemory> copies;
    for (Message& message : on_device) {
        if (message.buffer.on_device()) continue;
        copies.emplace_back(calls_->pool(), message.buffer.bytes(), own_stream());
        const Buffer copy = copies.back().like(message.buffer, device());
        if (message.verb == Verb::send) calls_->copy(copy, message.buffer, own_stream());
        message.buffer = copy;
    }
    calls_->issue(on_device, own_stream());
    auto work = calls_->work_after(own_stream());
    if (copies.empty()) return work;
    Work(work).wait();
    for (std::size_t i = 0; i < on_device.size(); ++i) {
        if (on_device[i].verb == Verb::recv)
            calls_->copy(messages[i].buffer, on_device[i].buffer, own_stream());
    }
    own_stream().synchronize();  // waits only for the copies, since the messages have completed
    return work;
}

DPTK_INLINE std::unique_ptr<Transport> NcclTransport::duplicate() {
    return part(all_ranks());
}

DPTK_INLINE std::unique_ptr<Transport> NcclTransport::subgroup(std::span<const int> ranks, std::string_view) {
    return part({ranks.begin(), ranks.end()});
}

DPTK_INLINE DeviceMemory NcclTransport::allocate_on_device(std::size_t bytes) {
    const cuda::DeviceScope on(device());
    return {detail::allocate_by_nccl(comm_, bytes), {DeviceType::cuda, device()}};
}

DPTK_INLINE NcclOptions NcclTransport::checked(const NcclOptions& options) {
    if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
        throw ArgumentError(detail::text("NCCL: invalid rank ", options.rank, " of ", options.size,
                                         ": expected 0 to size - 1"));
    }
    if (options.size > 1 && !options.store) {
        throw ArgumentError(detail::text("rank ", options.rank,
                                         ": NCCL needs a store (NcclOptions::store) to connect ranks"));
    }
    return options;
}

DPTK_INLINE NcclOptions NcclTransport::with_defaults(NcclOptions options) {
    if (!options.control) {
        if (!options.job_state) options.job_state = std::make_shared<detail::JobState>();
        options.control = detail::ControlPlane::make(
            {.rank = options.rank, .size = options.size, .timeout = options.timeout}, options.job_state);
    }
    options.job_state = options.control->job_state();
    if (!options.device) options.device = cuda::current_device();
    return options;
}

DPTK_INLINE std::vector<detail::NcclPeerInfo> NcclTransport::exchange_in_store(
    const detail::NcclPeerInfo& own) const {
    if (size() == 1) return {own};
    return detail::exchange_peer_info_in_store(*options_.store->clone(), options_.name, rank(), size(), own,
                                               *options_.job_state, options_.timeout);
}

DPTK_INLINE NcclOptions NcclTransport::described_by(ncclComm_t comm, NcclOptions options) {
    int device = 0;
    const auto ask = [&](const char* function, ncclResult_t result) {
        if (result != ncclSuccess)
            throw BackendError(detail::text(function, ": ", ncclGetErrorString(result)));
    };
    ask("ncclCommUserRank", ncclCommUserRank(comm, &options.rank));
    ask("ncclCommCount", ncclCommCount(comm, &options.size));
    ask("ncclCommCuDevice", ncclCommCuDevice(comm, &device));
    options.device = device;
    return options;
}

DPTK_INLINE detail::NcclCommOptions NcclTransport::comm_options() const {
    return {.rank = rank(),
            .size = size(),
            .job_rank = options_.control->rank(),
            .device = device(),
            .timeout = options_.timeout,
            .job_state = options_.job_state};
}

DPTK_INLINE detail::NcclPeerInfo NcclTransport::own_info() const {
    return detail::make_nccl_peer_info(rank(), options_.control->rank(), device());
}

DPTK_INLINE bool NcclTransport::share_gpu() const {
    if (options_.share_gpu) return *options_.share_gpu;
    const std::string value = detail::environment_text("DPTK_NCCL_SHARE_GPU");
    if (!value.empty() && value != "0" && value != "1")
        throw ArgumentError(detail::text("invalid DPTK_NCCL_SHARE_GPU='", value, "': expected 0 or 1"));
    return value == "1";
}

DPTK_INLINE void NcclTransport::set_peers(std::vector<detail::NcclPeerInfo> peers) {
    peers_ = std::move(peers);
    detail::check_nccl_peers(peers_, share_gpu() ? detail::SharedGpus::allowed : detail::SharedGpus::refused);
    for (const detail::NcclPeerInfo& info : peers_) hosts_.emplace_back(info.host.data());
}

DPTK_INLINE std::vector<int> NcclTransport::all_ranks() const {
    std::vector<int> ranks(static_cast<std::size_t>(size()));
    for (int rank = 0; rank < size(); ++rank) ranks[static_cast<std::size_t>(rank)] = rank;
    return ranks;
}

DPTK_INLINE std::unique_ptr<Transport> NcclTransport::part(const std::vector<int>& ranks) {
    NcclOptions options = options_;
    options.rank = static_cast<int>(detail::find(ranks, rank()) - ranks.begin());
    options.size = static_cast<int>(ranks.size());
    return std::make_unique<NcclTransport>(
        std::move(options), [&](const detail::NcclPeerInfo& own) { return exchange_peer_info(ranks, own); });
}

DPTK_INLINE std::vector<detail::NcclPeerInfo> NcclTransport::exchange_peer_info(
    const std::vector<int>& ranks, const detail::NcclPeerInfo& own) {
    const cuda::DeviceScope on(device());
    const std::size_t bytes = sizeof own;
    std::vector<detail::NcclPeerInfo> peers(ranks.size());
    const detail::StreamMemory mine(calls_->pool(), bytes, own_stream());
    const detail::StreamMemory all(calls_->pool(), bytes * ranks.size(), own_stream());
    cuda::detail::copy_bytes(mine.data(), &own, bytes, own_stream());
    comm_->launch_group("ncclSend, ncclRecv", [&](ncclComm_t comm, detail::NcclGroup& group) {
        for (std::size_t i = 0; i < ranks.size(); ++i) {
            group.add(ncclSend(mine.data(), bytes, ncclUint8, ranks[i], comm, own_stream().get()));
            group.add(ncclRecv(all.data(i * bytes), bytes, ncclUint8, ranks[i], comm, own_stream().get()));
        }
    });
    Work exchanged(calls_->work_after(own_stream()));
    // The limit is longer than the timeout, so that a channel that tracks the call can report the missing
    // ranks first.
    const detail::Deadline deadline(std::min(options_.timeout, detail::longest_wait) +
                                    std::chrono::milliseconds(500));
    if (!exchanged.wait(deadline.left())) comm_->give_up_on("the exchange of peer info");
    cuda::detail::copy_bytes(peers.data(), all.data(), bytes * ranks.size(), own_stream());
    own_stream().synchronize();
    return peers;
}

DPTK_INLINE void NcclTransport::make_own_stream() {
    const cuda::DeviceScope on(device());
    own_stream_ = std::make_unique<cuda::Stream>(cuda::StreamPriority::high);
}

DPTK_INLINE void NcclTransport::send_or_receive(const Message& message) {
    follow(message);
    Work(enqueue_together(std::span(&message, 1))).wait();
}

DPTK_INLINE void NcclTransport::check_device(const Buffer& buffer) const {
    if (buffer.count > 0 && buffer.device != Device{DeviceType::cuda, device()})
        throw ArgumentError(detail::text("rank ", rank(), ": expected elements on cuda:", device(),
                                         ", the device of this group, got elements on ",
                                         device_name(buffer.device)));
}

DPTK_INLINE std::shared_ptr<WorkState> NcclTransport::start_barrier() {
    if (!token_) token_ = std::make_unique<cuda::DeviceBuffer<std::uint8_t>>(1);
    comm_->launch("ncclAllReduce", [&](ncclComm_t comm) {
        return ncclAllReduce(token_->data(), token_->data(), 1, ncclUint8, ncclMax, comm, own_stream().get());
    });
    return calls_->work_after(own_stream());
}

DPTK_INLINE bool NcclTransport::gets_result(const Collective& call) const noexcept {
    return (call.verb != Verb::reduce && call.verb != Verb::gather) || rank() == call.root;
}

DPTK_INLINE std::shared_ptr<WorkState> NcclTransport::run_on_host_memory(const Collective& call) {
    const detail::StreamMemory input(calls_->pool(), call.input.bytes(), own_stream());
    const detail::StreamMemory output(calls_->pool(), call.output.bytes(), own_stream());
    Collective on_device = call;
    on_device.stream = own_stream();
    on_device.input = input.like(call.input, device());
    on_device.output = call.verb == Verb::broadcast ? on_device.input : output.like(call.output, device());
    if (call.input.data != nullptr) calls_->copy(on_device.input, call.input, own_stream());
    calls_->issue(on_device, own_stream());
    auto work = calls_->work_after(own_stream());
    Work(work).wait();
    if (gets_result(call)) {
        calls_->copy(call.output, on_device.output, own_stream());
        own_stream().synchronize();  // waits only for the copy, since the call has completed
    }
    return work;
}

}  // namespace DPTK_NAMESPACE
