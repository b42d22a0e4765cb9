/// Collectives over NCCL, between ranks that have a GPU each. The GPUs carry them out, in the order of the
/// streams that they are given; the host goes on. Elements in host memory are carried there and back, so that
/// a group over NCCL alone has all verbs; there the host waits.
///
/// NCCL sums in its own order and in the elements' own type, as docs/collectives.md tells. What it has no
/// operation for (bitwise ones, 16-bit integers, products of complex numbers, functions of the user's,
/// weighted sums of 16-bit floats) the host combines, in rank order.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/collective.hpp"
#include "dptk/comm/nccl_calls.hpp"
#include "dptk/comm/nccl_card.hpp"
#include "dptk/comm/nccl_comm.hpp"
#include "dptk/comm/nccl_memory.hpp"
#include "dptk/control/control_plane.hpp"
#include "dptk/core/cuda/event.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/cuda/stream.hpp"

namespace dptk {

/// Who this rank is, and how it finds the others.
struct NcclOptions {
    int rank = 0;  ///< This process's number.
    int size = 1;  ///< How many ranks there are.
    /// Through which the ranks find each other. Not needed where there is one rank.
    std::shared_ptr<Store> store = nullptr;
    /// The keys in the store begin with it: transports that share a store need different ones.
    std::string name = "nccl";
    /// The CUDA device; the current one where it is not given.
    std::optional<int> device = std::nullopt;
    /// Until all ranks have come, and then of every call until the GPU has it.
    std::chrono::milliseconds timeout = default_timeout;
    /// Whether several ranks, of different processes, may be on one GPU: NCCL then takes them for ranks of
    /// different hosts, and connects them by sockets. All ranks say the same. DPTK_NCCL_SHARE_GPU=1
    std::optional<bool> share_gpu = std::nullopt;
    /// The job that ends what goes on when it fails. Where it is null, one with deadlines alone is made over
    /// `health`.
    std::shared_ptr<ControlPlane> control = nullptr;
    /// What tells that the job has failed; only where `control` is null.
    std::shared_ptr<JobHealth> health = nullptr;
};

/// A Transport over NCCL, of ranks with a GPU each. Moves, and is not copied.
class NcclTransport {
  public:
    static constexpr bool interruptible = true;

    /// Gives all ranks' cards, by rank, for this rank's own. Collective.
    using CardExchange = std::function<std::vector<detail::NcclCard>(const detail::NcclCard&)>;

    /// Connects with all other ranks. Collective; blocks. Throws, on all ranks alike, BackendError where CUDA
    /// or NCCL does not work on one of them, MismatchError where their NCCLs differ, and ArgumentError where
    /// two of them are on one GPU; TimeoutError, with the ranks that have not come; PeerLostError where the
    /// job fails meanwhile.
    explicit NcclTransport(const NcclOptions& options)
        : NcclTransport(checked(options), [&](const detail::NcclCard& own) { return meet_in_store(own); }) {}

    /// The same where the ranks find each other by other means.
    NcclTransport(NcclOptions options, const CardExchange& exchange)
        : options_(completed(std::move(options))) {
        if (share_gpu()) detail::pose_as_own_host();
        detail::NcclCard own = own_card();
        detail::note_problem(own, [&] { make_own_stream(); });
        learn(exchange(own));
        comm_ = detail::NcclComm::connect(comm_options(), cards_[0].id);
        calls_.emplace(comm_);
    }

    /// Works on a communicator that is there, on its device. Collective over it; with NcclOwner::caller
    /// `comm` must live until the transport has closed. Rank, size and device of the options do not matter.
    /// Deadlines of what NCCL does on the host hold where `comm` was made with config.blocking = 0.
    NcclTransport(ncclComm_t comm, NcclOwner owner, NcclOptions options = {})
        : options_(completed(described_by(comm, std::move(options)))),
          comm_(detail::NcclComm::around(comm, comm_options(), owner)) {
        make_own_stream();
        calls_.emplace(comm_);
        learn(exchange_cards(everybody(), own_card()));
    }

    [[nodiscard]] int rank() const noexcept { return options_.rank; }
    [[nodiscard]] int size() const noexcept { return options_.size; }
    [[nodiscard]] int local_rank() const { return detail::local_place(hosts_, rank()).rank; }
    [[nodiscard]] int local_size() const { return detail::local_place(hosts_, rank()).size; }
    [[nodiscard]] std::string_view backend() const noexcept { return "nccl"; }
    [[nodiscard]] std::shared_ptr<ControlPlane> control() const { return options_.control; }

    /// On which the buffers of its calls lie.
    [[nodiscard]] int device() const noexcept { return *options_.device; }

    /// Throws what has failed here, if anything has.
    void rethrow_failure() { comm_->rethrow_failure(); }

    /// Hands a call to the GPU, in the order of its stream; one on host memory is over when this returns. On
    /// a stream that is being captured it goes into the graph, and whoever launches that waits for it.
    [[nodiscard]] std::shared_ptr<WorkState> enqueue(const Collective& call) {
        const cuda::DeviceScope on(device());
        if (call.verb == Verb::barrier) return start_barrier();
        if (!call.shared_shape().on_device()) return carry_out_for_host(call);
        check_place(call.input);
        check_place(call.output);
        const bool is_captured = cuda::is_capturing(call.stream);
        if (is_captured && !detail::NcclCalls::is_all_on_gpu(call))
            cuda::detail::refuse_capture(rank(), call.stream);
        calls_->issue(call, call.stream);
        if (is_captured) {
            if (!graph_watch_) graph_watch_ = detail::NcclWatch::start(comm_);
            return std::make_shared<detail::CapturedWork>();
        }
        return calls_->work_behind(call.stream);
    }

    /// The same in the order of a stream of the transport's own, behind what the call's stream does before
    /// it.
    [[nodiscard]] std::shared_ptr<WorkState> enqueue_beside(const Collective& call) {
        if (call.verb == Verb::barrier || !call.shared_shape().on_device()) return enqueue(call);
        const cuda::DeviceScope on(device());
        check_place(call.shared_shape());
        cuda::detail::refuse_capture(rank(), call.stream);
        cuda::Event(call.stream).order_before(own_stream());
        Collective beside = call;
        beside.stream = own_stream();
        return enqueue(beside);
    }

    /// The transport's own stream comes behind what the message's has been given.
    void follow(const Message& message) {
        if (!message.buffer.on_device()) return;
        const cuda::DeviceScope on(device());
        check_place(message.buffer);
        cuda::detail::refuse_capture(rank(), message.stream);
        cuda::Event(message.stream).order_before(own_stream());
    }

    /// Hands messages to the GPU, which carries them all out at once, in the transport's own stream; those of
    /// host memory are over when this returns. Messages between two ranks arrive in the order in which they
    /// were sent, whatever their tags.
    [[nodiscard]] std::shared_ptr<WorkState> enqueue_together(std::span<const Message> messages) {
        const cuda::DeviceScope on(device());
        std::vector<Message> there(messages.begin(), messages.end());
        std::deque<detail::StreamMemory> copies;
        for (Message& message : there) {
            if (message.buffer.on_device()) continue;
            copies.emplace_back(calls_->pool(), message.buffer.bytes(), own_stream());
            const Buffer copy = copies.back().like(message.buffer, device());
            if (message.verb == Verb::send) calls_->copy(copy, message.buffer, own_stream());
            message.buffer = copy;
        }
        calls_->issue(there, own_stream());
        auto work = calls_->work_behind(own_stream());
        if (copies.empty()) return work;
        Work(work).wait();
        for (std::size_t i = 0; i < there.size(); ++i) {
            if (there[i].verb == Verb::recv) calls_->copy(messages[i].buffer, there[i].buffer, own_stream());
        }
        own_stream().synchronize();  // what is copied is there already
        return work;
    }

    void send(const Buffer& buffer, int to, int tag) { transfer({Verb::send, buffer, to, tag, {}}); }
    void recv(const Buffer& buffer, int from, int tag) { transfer({Verb::recv, buffer, from, tag, {}}); }

    /// A communicator of its own, on the same device. Collective.
    [[nodiscard]] NcclTransport duplicate() { return part(everybody()); }

    /// Blocks until all of these ranks have called it.
    [[nodiscard]] NcclTransport subgroup(std::span<const int> ranks, std::string_view) {
        return part({ranks.begin(), ranks.end()});
    }

    /// By ncclMemAlloc, and registered. Collective.
    [[nodiscard]] DeviceMemory allocate_on_device(std::size_t bytes) {
        const cuda::DeviceScope on(device());
        return {detail::allocate_by_nccl(comm_, bytes), {DeviceType::cuda, device()}};
    }

    /// Blocks until all ranks have come here.
    void close() { comm_->close(); }

  private:
    [[nodiscard]] static NcclOptions checked(const NcclOptions& options) {
        if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
            throw ArgumentError(detail::text("no rank ", options.rank, " of ", options.size,
                                             " for NCCL: ranks are 0 to size - 1"));
        }
        if (options.size > 1 && !options.store) {
            throw ArgumentError(detail::text("rank ", options.rank,
                                             ": NCCL needs a store through which ranks find each other"));
        }
        return options;
    }

    [[nodiscard]] static NcclOptions completed(NcclOptions options) {
        if (!options.control) {
            if (!options.health) options.health = std::make_shared<JobHealth>();
            options.control = ControlPlane::make(
                {.rank = options.rank, .size = options.size, .timeout = options.timeout}, options.health);
        }
        options.health = options.control->health();
        if (!options.device) options.device = cuda::current_device();
        return options;
    }

    [[nodiscard]] std::vector<detail::NcclCard> meet_in_store(const detail::NcclCard& own) const {
        if (size() == 1) return {own};
        return detail::exchange_cards_in_store(*options_.store->clone(), options_.name, rank(), size(), own,
                                               *options_.health, options_.timeout);
    }

    [[nodiscard]] static NcclOptions described_by(ncclComm_t comm, NcclOptions options) {
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

    [[nodiscard]] detail::NcclCommOptions comm_options() const {
        return {.rank = rank(),
                .size = size(),
                .job_rank = options_.control->rank(),
                .device = device(),
                .timeout = options_.timeout,
                .health = options_.health};
    }

    [[nodiscard]] detail::NcclCard own_card() const {
        return detail::make_nccl_card(rank(), options_.control->rank(), device());
    }

    [[nodiscard]] bool share_gpu() const {
        const char* wish = std::getenv("DPTK_NCCL_SHARE_GPU");
        return options_.share_gpu.value_or(wish != nullptr && std::string_view(wish) == "1");
    }

    void learn(std::vector<detail::NcclCard> cards) {
        cards_ = std::move(cards);
        detail::check_nccl_cards(cards_,
                                 share_gpu() ? detail::SharedGpus::allowed : detail::SharedGpus::refused);
        for (const detail::NcclCard& card : cards_) hosts_.emplace_back(card.host.data());
    }

    [[nodiscard]] std::vector<int> everybody() const {
        std::vector<int> ranks(static_cast<std::size_t>(size()));
        for (int rank = 0; rank < size(); ++rank) ranks[static_cast<std::size_t>(rank)] = rank;
        return ranks;
    }

    [[nodiscard]] NcclTransport part(const std::vector<int>& ranks) {
        NcclOptions options = options_;
        options.rank = static_cast<int>(std::ranges::find(ranks, rank()) - ranks.begin());
        options.size = static_cast<int>(ranks.size());
        return {std::move(options), [&](const detail::NcclCard& own) { return exchange_cards(ranks, own); }};
    }

    /// The cards of some ranks, this one among them, by NCCL itself.
    [[nodiscard]] std::vector<detail::NcclCard> exchange_cards(const std::vector<int>& ranks,
                                                               const detail::NcclCard& own) {
        const cuda::DeviceScope on(device());
        const std::size_t bytes = sizeof own;
        std::vector<detail::NcclCard> cards(ranks.size());
        const detail::StreamMemory mine(calls_->pool(), bytes, own_stream());
        const detail::StreamMemory all(calls_->pool(), bytes * ranks.size(), own_stream());
        cuda::detail::copy_bytes(mine.data(), &own, bytes, own_stream());
        comm_->launch_group("ncclSend, ncclRecv", [&](ncclComm_t comm, detail::NcclGroup& group) {
            for (std::size_t i = 0; i < ranks.size(); ++i) {
                group.add(ncclSend(mine.data(), bytes, ncclUint8, ranks[i], comm, own_stream().get()));
                group.add(
                    ncclRecv(all.data(i * bytes), bytes, ncclUint8, ranks[i], comm, own_stream().get()));
            }
        });
        Work exchanged(calls_->work_behind(own_stream()));
        // Where a channel watches over the call, it tells before who is missing.
        const detail::Deadline deadline(std::min(options_.timeout, detail::longest_wait) +
                                        std::chrono::milliseconds(500));
        if (!exchanged.wait(deadline.left())) comm_->give_up_on("the ranks' exchange of addresses");
        cuda::detail::copy_bytes(cards.data(), all.data(), bytes * ranks.size(), own_stream());
        own_stream().synchronize();
        return cards;
    }

    [[nodiscard]] cuda::Stream& own_stream() { return *own_stream_; }

    void make_own_stream() {
        const cuda::DeviceScope on(device());
        own_stream_ = std::make_unique<cuda::Stream>(cuda::StreamPriority::high);
    }

    void transfer(const Message& message) {
        follow(message);
        Work(enqueue_together(std::span(&message, 1))).wait();
    }

    void check_place(const Buffer& buffer) const {
        if (buffer.count > 0 && buffer.device != Device{DeviceType::cuda, device()})
            throw ArgumentError(detail::text("rank ", rank(), ": elements on ", device_name(buffer.device),
                                             " in a group whose NCCL works on cuda:", device()));
    }

    [[nodiscard]] std::shared_ptr<WorkState> start_barrier() {
        if (!token_) token_ = std::make_unique<cuda::DeviceBuffer<std::uint8_t>>(1);
        comm_->launch("ncclAllReduce", [&](ncclComm_t comm) {
            return ncclAllReduce(token_->data(), token_->data(), 1, ncclUint8, ncclMax, comm,
                                 own_stream().get());
        });
        return calls_->work_behind(own_stream());
    }

    [[nodiscard]] bool gets_result(const Collective& call) const noexcept {
        return (call.verb != Verb::reduce && call.verb != Verb::gather) || rank() == call.root;
    }

    [[nodiscard]] std::shared_ptr<WorkState> carry_out_for_host(const Collective& call) {
        const detail::StreamMemory input(calls_->pool(), call.input.bytes(), own_stream());
        const detail::StreamMemory output(calls_->pool(), call.output.bytes(), own_stream());
        Collective there = call;
        there.stream = own_stream();
        there.input = input.like(call.input, device());
        there.output = call.verb == Verb::broadcast ? there.input : output.like(call.output, device());
        if (call.input.data != nullptr) calls_->copy(there.input, call.input, own_stream());
        calls_->issue(there, own_stream());
        auto work = calls_->work_behind(own_stream());
        Work(work).wait();
        if (gets_result(call)) {
            calls_->copy(call.output, there.output, own_stream());
            own_stream().synchronize();  // what is copied is there already
        }
        return work;
    }

    NcclOptions options_;
    std::vector<detail::NcclCard> cards_;
    std::vector<std::string> hosts_;
    std::unique_ptr<cuda::Stream> own_stream_;
    std::unique_ptr<cuda::DeviceBuffer<std::uint8_t>> token_;
    std::shared_ptr<detail::NcclComm> comm_;
    std::optional<detail::NcclCalls> calls_;
    std::shared_ptr<detail::NcclWatch> graph_watch_;  // once a graph has calls
};

}  // namespace dptk
