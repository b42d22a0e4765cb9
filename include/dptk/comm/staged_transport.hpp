/// Collectives on device memory over whatever carries host memory. What is sent goes through page-locked host
/// memory, in pieces: while one travels between the ranks, the next one comes from the device and the last
/// one goes there. Several ranks may be on one GPU. Where the transport below reaches device memory itself,
/// as a CUDA-aware MPI does, it gets the buffers as they are.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/comm/channel.hpp"
#include "dptk/comm/collective.hpp"
#include "dptk/comm/pause.hpp"
#include "dptk/control/control_plane.hpp"
#include "dptk/core/cuda/copy.hpp"
#include "dptk/core/cuda/device.hpp"
#include "dptk/core/cuda/event.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/cuda/stream.hpp"

namespace dptk {

namespace detail {

/// A buffer as the parts that one rank gives or gets; a piece of it is as many elements of each part.
class StagedParts {
  public:
    StagedParts(const Buffer& whole, std::vector<std::size_t> counts)
        : whole_(whole), counts_(std::move(counts)) {}

    /// The largest part's.
    [[nodiscard]] std::size_t count() const noexcept {
        return counts_.empty() ? 0 : *std::ranges::max_element(counts_);
    }
    [[nodiscard]] std::size_t parts() const noexcept { return counts_.size(); }

    /// How many elements each part has from `first` on, at most `count`.
    [[nodiscard]] std::vector<std::size_t> lengths(std::size_t first, std::size_t count) const {
        std::vector<std::size_t> lengths;
        for (const std::size_t all : counts_)
            lengths.push_back(all > first ? std::min(all - first, count) : 0);
        return lengths;
    }

    /// action(these elements of a part, how many come before them in the piece) for each part.
    template <class Action>
    void for_each(std::size_t first, std::size_t count, Action&& action) const {
        std::size_t begin = 0;
        std::size_t before = 0;
        const std::vector<std::size_t> here = lengths(first, count);
        for (std::size_t i = 0; i < counts_.size(); ++i) {
            if (here[i] > 0) action(whole_.slice(begin + first, here[i]), before);
            begin += counts_[i];
            before += here[i];
        }
    }

  private:
    Buffer whole_;
    std::vector<std::size_t> counts_;
};

/// Page-locked memory for one piece, and when the device is done with it.
struct StagedSlot {
    cuda::PinnedBuffer<std::byte> input;
    cuda::PinnedBuffer<std::byte> output;
    cuda::Event arrived;  // from the device
    cuda::Event left;     // for the device
};

}  // namespace detail

/// A Transport for the memory of one device, by way of the host.
class StagedTransport {
  public:
    static constexpr bool interruptible = true;

    /// Over a channel of its own, for the memory of one device.
    StagedTransport(std::unique_ptr<Channel> host, int device)
        : host_(std::move(host)), device_(device), name_(host_->backend() + ", staged") {
        const cuda::DeviceScope on(device_);
        stages_ = std::make_unique<Stages>();
    }

    [[nodiscard]] int rank() const { return host_->rank(); }
    [[nodiscard]] int size() const { return host_->size(); }
    [[nodiscard]] int local_rank() const { return host_->local_rank(); }
    [[nodiscard]] int local_size() const { return host_->local_size(); }
    [[nodiscard]] std::string_view backend() const noexcept { return name_; }
    [[nodiscard]] std::shared_ptr<ControlPlane> control() const { return host_->job().control; }
    [[nodiscard]] bool callable_from_this_thread() const { return host_->callable_from_this_thread(); }

    [[nodiscard]] bool progresses_by_caller() const { return host_->progresses_by_caller(); }

    /// Nothing goes on by itself where no background thread may communicate.
    [[nodiscard]] std::shared_ptr<WorkState> start(const Collective&) { return nullptr; }

    [[nodiscard]] std::function<void()> prepare(const Collective& call) {
        if (!call.shared_shape().on_device()) return [this, call] { host_->run(call); };
        check_device(call.shared_shape());
        return [this, call, ready = begin(call.stream)] { carry_out(call, *ready); };
    }

    /// A message's size goes before it, since it is cut into pieces.
    int transfer(const Message& message) {
        if (!message.buffer.on_device()) return host_->run(message);
        check_device(message.buffer);
        const cuda::DeviceScope on(device_);
        const std::shared_ptr<cuda::Event> ready = begin(message.stream);
        ready->order_before(stages_->from_device);
        return message.verb == Verb::send ? send_pieces(message) : receive_pieces(message);
    }

    void send(const Buffer& buffer, int to, int tag) {
        static_cast<void>(transfer({Verb::send, buffer, to, tag, {}}));
    }
    void recv(const Buffer& buffer, int from, int tag) {
        static_cast<void>(transfer({Verb::recv, buffer, from, tag, {}}));
    }
    [[nodiscard]] int recv_any(const Buffer& buffer, int tag) {
        return transfer({Verb::recv, buffer, any_rank, tag, {}});
    }

    [[nodiscard]] DeviceMemory allocate_on_device(std::size_t bytes) {
        const cuda::DeviceScope on(device_);
        const auto memory = std::make_shared<cuda::DeviceBuffer<std::byte>>(bytes);
        cuda::check(cudaMemset(memory->data(), 0, bytes), "cudaMemset");
        cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        return {{memory, memory->data()}, {DeviceType::cuda, device_}};
    }

  private:
    /// Of what is under way at once, at most.
    static constexpr std::size_t piece_bytes = std::size_t{4} << 20;

    struct Stages {
        cuda::Stream from_device;
        cuda::Stream to_device;
        /// One piece comes, one travels, one goes.
        std::array<detail::StagedSlot, 3> slots;
    };

    void check_device(const Buffer& buffer) const {
        if (buffer.count == 0 || buffer.device.index == device_) return;
        throw ArgumentError(detail::text("rank ", rank(), ": elements on ", device_name(buffer.device),
                                         " in a group that works on cuda:", device_));
    }

    /// What the stream has been given so far.
    [[nodiscard]] std::shared_ptr<cuda::Event> begin(StreamRef stream) const {
        const cuda::DeviceScope on(device_);
        cuda::detail::refuse_capture(rank(), stream);
        return std::make_shared<cuda::Event>(stream);
    }

    /// On the host, as long as the job is well.
    void await(const cuda::Event& event) const {
        detail::Pause pause;
        while (!event.ready()) {
            control()->health()->check();
            pause();
        }
    }

    void carry_out(const Collective& call, const cuda::Event& ready) {
        const cuda::DeviceScope on(device_);
        ready.order_before(stages_->from_device);
        if (takes_device_memory(call)) return carry_out_in_place(call);
        carry_out_in_pieces(call);
    }

    [[nodiscard]] static bool is_in_place_verb(Verb verb) noexcept {
        return verb == Verb::all_reduce || verb == Verb::broadcast || verb == Verb::all_gather;
    }

    [[nodiscard]] bool takes_device_memory(const Collective& call) const {
        return is_in_place_verb(call.verb) && host_->takes_device_memory(call);
    }

    /// The transport below knows no streams: before it is called, all that is to be there must be.
    void carry_out_in_place(const Collective& call) {
        Collective in_place = call;
        const std::size_t first =
            call.verb == Verb::all_gather ? static_cast<std::size_t>(rank()) * call.input.count : 0;
        in_place.input = call.output.slice(first, call.input.count);
        if (in_place.input.data != call.input.data) {
            cuda::detail::copy_bytes(in_place.input.data, call.input.data, call.input.bytes(),
                                     stages_->from_device);
        }
        await(cuda::Event(stages_->from_device));
        host_->run(in_place);
    }

    [[nodiscard]] std::vector<std::size_t> parts_of(std::size_t count, bool one_a_rank) const {
        if (!one_a_rank) return {count};
        const auto ranks = static_cast<std::size_t>(size());
        return std::vector<std::size_t>(ranks, count / ranks);
    }

    [[nodiscard]] detail::StagedParts input_parts(const Collective& call) const {
        const bool gives =
            (call.verb != Verb::broadcast && call.verb != Verb::scatter) || rank() == call.root;
        const bool one_a_rank =
            call.verb == Verb::scatter || call.verb == Verb::reduce_scatter || call.verb == Verb::all_to_all;
        return {call.input, gives ? parts_of(call.input.count, one_a_rank) : std::vector<std::size_t>{}};
    }

    [[nodiscard]] detail::StagedParts output_parts(const Collective& call) const {
        const bool gets = (call.verb != Verb::reduce && call.verb != Verb::gather) || rank() == call.root;
        const bool one_a_rank =
            call.verb == Verb::gather || call.verb == Verb::all_gather || call.verb == Verb::all_to_all;
        if (call.verb == Verb::all_gather_uneven)
            return {call.output, {call.counts.begin(), call.counts.end()}};
        return {call.output, gets ? parts_of(call.output.count, one_a_rank) : std::vector<std::size_t>{}};
    }

    /// How many elements of a part all ranks are through with when the call is done.
    [[nodiscard]] std::size_t length(const Collective& call, const detail::StagedParts& output) const {
        if (call.verb == Verb::all_gather_uneven) return output.count();
        const auto ranks = static_cast<std::size_t>(size());
        switch (call.verb) {
            case Verb::scatter:
            case Verb::reduce_scatter: return call.output.count;
            case Verb::all_to_all: return call.input.count / ranks;
            default: return call.input.count;
        }
    }

    /// On one side or on both. The same on all ranks, and so is the size of a piece.
    [[nodiscard]] static bool has_part_a_rank(Verb verb) noexcept {
        return verb != Verb::all_reduce && verb != Verb::reduce && verb != Verb::broadcast;
    }

    void carry_out_in_pieces(const Collective& call) {
        const detail::StagedParts input = input_parts(call);
        const detail::StagedParts output = output_parts(call);
        const std::size_t all = length(call, output);
        const std::size_t element = call.shared_shape().element_size();
        const std::size_t parts = has_part_a_rank(call.verb) ? static_cast<std::size_t>(size()) : 1;
        const std::size_t piece =
            std::clamp<std::size_t>(piece_bytes / (element * parts), 1, std::max<std::size_t>(all, 1));
        reserve(piece * parts * element);
        fetch(input, 0, piece, 0);
        std::size_t number = 0;
        for (std::size_t first = 0; first < all; first += piece, ++number) {
            if (first + piece < all) fetch(input, first + piece, piece, number + 1);
            detail::StagedSlot& slot = slot_of(number);
            await(slot.arrived);
            host_run(call, slot, input.lengths(first, piece), output.lengths(first, piece),
                     std::min(piece, all - first));
            deliver(call, output, first, piece, slot);
        }
        await(cuda::Event(stages_->to_device));
    }

    [[nodiscard]] detail::StagedSlot& slot_of(std::size_t number) {
        return stages_->slots[number % stages_->slots.size()];
    }

    void reserve(std::size_t bytes) {
        for (detail::StagedSlot& slot : stages_->slots) {
            if (slot.input.size() >= bytes) continue;
            slot.input = cuda::PinnedBuffer<std::byte>(bytes);
            slot.output = cuda::PinnedBuffer<std::byte>(bytes);
        }
    }

    /// Starts to copy a piece from the device, behind the copy to the device that its slot was used for
    /// before.
    void fetch(const detail::StagedParts& input, std::size_t first, std::size_t count, std::size_t number) {
        detail::StagedSlot& slot = slot_of(number);
        slot.left.order_before(stages_->from_device);
        input.for_each(first, count, [&](const Buffer& part, std::size_t before) {
            cuda::detail::copy_bytes(slot.input.data() + before * part.element_size(), part.data,
                                     part.bytes(), stages_->from_device);
        });
        slot.arrived.record(stages_->from_device);
    }

    /// The call on one piece: `length` elements of each part.
    void host_run(const Collective& call, detail::StagedSlot& slot,
                  const std::vector<std::size_t>& input_lengths,
                  const std::vector<std::size_t>& output_lengths, std::size_t length) {
        const auto total = [](const std::vector<std::size_t>& lengths) {
            std::size_t sum = 0;
            for (const std::size_t each : lengths) sum += each;
            return sum;
        };
        const auto staged = [&](const Buffer& like, cuda::PinnedBuffer<std::byte>& memory,
                                std::size_t count) {
            Buffer buffer = like.at(memory.data());
            buffer.device = {};
            buffer.count = count;
            return buffer;
        };
        Collective piece = call;
        piece.stream = {};
        if (!has_part_a_rank(call.verb)) {
            piece.input = piece.output = staged(call.shared_shape(), slot.input, length);
        } else {
            piece.input = staged(call.shared_shape(), slot.input, total(input_lengths));
            piece.output = staged(call.shared_shape(), slot.output, total(output_lengths));
        }
        if (call.verb == Verb::all_gather_uneven) {
            piece.counts = output_lengths;
            piece.input.count = output_lengths[static_cast<std::size_t>(rank())];
        }
        host_->run(piece);
    }

    void deliver(const Collective& call, const detail::StagedParts& output, std::size_t first,
                 std::size_t count, detail::StagedSlot& slot) {
        const std::byte* from = has_part_a_rank(call.verb) ? slot.output.data() : slot.input.data();
        output.for_each(first, count, [&](const Buffer& part, std::size_t before) {
            cuda::detail::copy_bytes(part.data, from + before * part.element_size(), part.bytes(),
                                     stages_->to_device);
        });
        slot.left.record(stages_->to_device);
    }

    [[nodiscard]] static Buffer bytes_at(void* data, std::size_t bytes) {
        return {data, bytes, DType::u8, {}, 1};
    }

    int send_pieces(const Message& message) {
        std::size_t bytes = message.buffer.bytes();
        reserve(std::min(bytes, piece_bytes));
        host_->run({Verb::send, bytes_at(&bytes, sizeof bytes), message.peer, message.tag, {}});
        const detail::StagedParts whole(bytes_on_device(message.buffer), {bytes});
        if (bytes > 0) fetch(whole, 0, piece_bytes, 0);
        std::size_t number = 0;
        for (std::size_t first = 0; first < bytes; first += piece_bytes, ++number) {
            if (first + piece_bytes < bytes) fetch(whole, first + piece_bytes, piece_bytes, number + 1);
            detail::StagedSlot& slot = slot_of(number);
            await(slot.arrived);
            const std::size_t length = std::min(piece_bytes, bytes - first);
            host_->run({Verb::send, bytes_at(slot.input.data(), length), message.peer, message.tag, {}});
        }
        return message.peer;
    }

    int receive_pieces(const Message& message) {
        const std::size_t bytes = message.buffer.bytes();
        std::size_t sent = 0;
        reserve(std::min(bytes, piece_bytes));
        const int peer =
            host_->run({Verb::recv, bytes_at(&sent, sizeof sent), message.peer, message.tag, {}});
        if (sent != bytes) {
            throw MismatchError(detail::text("rank ", rank(), ": recv of ", bytes, " bytes from rank ", peer,
                                             ", whose message has ", sent));
        }
        const detail::StagedParts whole(bytes_on_device(message.buffer), {bytes});
        await(cuda::Event(stages_->from_device));  // what the stream does with the memory before
        std::size_t number = 0;
        for (std::size_t first = 0; first < bytes; first += piece_bytes, ++number) {
            detail::StagedSlot& slot = slot_of(number);
            await(slot.left);
            const std::size_t length = std::min(piece_bytes, bytes - first);
            host_->run({Verb::recv, bytes_at(slot.input.data(), length), peer, message.tag, {}});
            whole.for_each(first, length, [&](const Buffer& part, std::size_t) {
                cuda::detail::copy_bytes(part.data, slot.input.data(), part.bytes(), stages_->to_device);
            });
            slot.left.record(stages_->to_device);
        }
        await(cuda::Event(stages_->to_device));
        return peer;
    }

    [[nodiscard]] static Buffer bytes_on_device(const Buffer& buffer) {
        return {buffer.data, buffer.bytes(), DType::u8, buffer.device, 1};
    }

    std::unique_ptr<Channel> host_;
    int device_;
    std::string name_;
    std::unique_ptr<Stages> stages_;
};

}  // namespace dptk
