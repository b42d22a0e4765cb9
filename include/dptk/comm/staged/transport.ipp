#pragma once

#include "dptk/comm/staged/transport.hpp"

#include <algorithm>
#include <utility>

#include "dptk/comm/detail/backoff.hpp"
#include "dptk/core/cuda/device.hpp"
#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE StagedParts::StagedParts(const Buffer& whole, std::vector<std::size_t> counts)
    : whole_(whole), counts_(std::move(counts)) {}

DPTK_INLINE std::size_t StagedParts::count() const noexcept {
    return counts_.empty() ? 0 : *detail::max_element(counts_);
}

DPTK_INLINE std::vector<std::size_t> StagedParts::lengths(std::size_t first, std::size_t count) const {
    std::vector<std::size_t> lengths;
    for (const std::size_t all : counts_) lengths.push_back(all > first ? std::min(all - first, count) : 0);
    return lengths;
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE StagedTransport::StagedTransport(detail::EngineOwner host, int device)
    : host_(std::move(host)), device_(device), name_(host_->backend() + ", staged") {
    const cuda::DeviceScope on(device_);
    stages_ = std::make_unique<Stages>();
}

DPTK_INLINE void StagedTransport::run(const Collective& call) {
    prepare(call)();
}

DPTK_INLINE std::function<void()> StagedTransport::prepare(const Collective& call) {
    if (!call.shared_shape().on_device()) return [this, call] { host_->run(call); };
    check_device(call.shared_shape());
    return [this, call, ready = begin(call.stream)] { carry_out(call, *ready); };
}

DPTK_INLINE int StagedTransport::transfer(const Message& message) {
    if (!message.buffer.on_device()) return host_->run(message);
    check_device(message.buffer);
    const cuda::DeviceScope on(device_);
    const std::shared_ptr<cuda::Event> ready = begin(message.stream);
    ready->order_before(stages_->from_device);
    return message.verb == Verb::send ? send_pieces(message) : receive_pieces(message);
}

DPTK_INLINE void StagedTransport::send(const Buffer& buffer, int to, int tag) {
    static_cast<void>(transfer({Verb::send, buffer, to, tag, {}}));
}

DPTK_INLINE void StagedTransport::recv(const Buffer& buffer, int from, int tag) {
    static_cast<void>(transfer({Verb::recv, buffer, from, tag, {}}));
}

DPTK_INLINE int StagedTransport::recv_any(const Buffer& buffer, int tag) {
    return transfer({Verb::recv, buffer, any_rank, tag, {}});
}

DPTK_INLINE DeviceMemory StagedTransport::allocate_on_device(std::size_t bytes) {
    const cuda::DeviceScope on(device_);
    const auto memory = std::make_shared<cuda::DeviceBuffer<std::byte>>(bytes);
    cuda::check(cudaMemset(memory->data(), 0, bytes), "cudaMemset");
    cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return {{memory, memory->data()}, {DeviceType::cuda, device_}};
}

DPTK_INLINE void StagedTransport::check_device(const Buffer& buffer) const {
    if (buffer.count == 0 || buffer.device.index == device_) return;
    throw ArgumentError(detail::text("rank ", rank(), ": expected elements on cuda:", device_,
                                     ", the device of this group, got elements on ",
                                     device_name(buffer.device)));
}

DPTK_INLINE std::shared_ptr<cuda::Event> StagedTransport::begin(StreamRef stream) const {
    const cuda::DeviceScope on(device_);
    cuda::detail::refuse_capture(rank(), stream);
    return std::make_shared<cuda::Event>(stream);
}

DPTK_INLINE void StagedTransport::await(const cuda::Event& event) const {
    detail::Backoff pause;
    while (!event.ready()) {
        control()->job_state()->check();
        pause();
    }
}

DPTK_INLINE void StagedTransport::carry_out(const Collective& call, const cuda::Event& ready) {
    const cuda::DeviceScope on(device_);
    ready.order_before(stages_->from_device);
    if (passes_device_memory(call)) return carry_out_in_place(call);
    carry_out_in_pieces(call);
}

DPTK_INLINE bool StagedTransport::is_in_place_verb(Verb verb) noexcept {
    return verb == Verb::all_reduce || verb == Verb::broadcast || verb == Verb::all_gather;
}

DPTK_INLINE bool StagedTransport::passes_device_memory(const Collective& call) const {
    return is_in_place_verb(call.verb) && host_->takes_device_memory(call);
}

DPTK_INLINE void StagedTransport::carry_out_in_place(const Collective& call) {
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

DPTK_INLINE std::vector<std::size_t> StagedTransport::parts_of(std::size_t count, bool one_a_rank) const {
    if (!one_a_rank) return {count};
    const auto ranks = static_cast<std::size_t>(size());
    return std::vector<std::size_t>(ranks, count / ranks);
}

DPTK_INLINE detail::StagedParts StagedTransport::input_parts(const Collective& call) const {
    if (call.verb == Verb::all_to_all_uneven) return {call.input, {call.counts.begin(), call.counts.end()}};
    const bool gives = (call.verb != Verb::broadcast && call.verb != Verb::scatter) || rank() == call.root;
    const bool one_a_rank =
        call.verb == Verb::scatter || call.verb == Verb::reduce_scatter || call.verb == Verb::all_to_all;
    return {call.input, gives ? parts_of(call.input.count, one_a_rank) : std::vector<std::size_t>{}};
}

DPTK_INLINE detail::StagedParts StagedTransport::output_parts(const Collective& call) const {
    const bool gets = (call.verb != Verb::reduce && call.verb != Verb::gather) || rank() == call.root;
    const bool one_a_rank =
        call.verb == Verb::gather || call.verb == Verb::all_gather || call.verb == Verb::all_to_all;
    if (call.verb == Verb::all_gather_uneven) return {call.output, {call.counts.begin(), call.counts.end()}};
    if (call.verb == Verb::all_to_all_uneven)
        return {call.output, {call.output_counts.begin(), call.output_counts.end()}};
    return {call.output, gets ? parts_of(call.output.count, one_a_rank) : std::vector<std::size_t>{}};
}

DPTK_INLINE std::size_t StagedTransport::length(const Collective& call,
                                                const detail::StagedParts& output) const {
    if (call.verb == Verb::all_gather_uneven) return output.count();
    if (call.verb == Verb::all_to_all_uneven)
        return std::max<std::size_t>({call.input.count, call.output.count, 1});
    const auto ranks = static_cast<std::size_t>(size());
    switch (call.verb) {
        case Verb::scatter:
        case Verb::reduce_scatter: return call.output.count;
        case Verb::all_to_all: return call.input.count / ranks;
        default: return call.input.count;
    }
}

DPTK_INLINE bool StagedTransport::has_part_a_rank(Verb verb) noexcept {
    return verb != Verb::all_reduce && verb != Verb::reduce && verb != Verb::broadcast;
}

DPTK_INLINE void StagedTransport::carry_out_in_pieces(const Collective& call) {
    const detail::StagedParts input = input_parts(call);
    const detail::StagedParts output = output_parts(call);
    const std::size_t all = length(call, output);
    const std::size_t element = call.shared_shape().element_size();
    const std::size_t parts = has_part_a_rank(call.verb) ? static_cast<std::size_t>(size()) : 1;
    std::size_t piece =
        std::clamp<std::size_t>(piece_bytes / (element * parts), 1, std::max<std::size_t>(all, 1));
    if (call.verb == Verb::all_to_all_uneven) {
        piece = all;  // the ranks do not know how many pieces others would need
        reserve(std::max(call.input.bytes(), call.output.bytes()));
    } else {
        reserve(piece * parts * element);
    }
    fetch(input, 0, piece, 0);
    std::size_t number = 0;
    for (std::size_t first = 0; first < all; first += piece, ++number) {
        if (first + piece < all) fetch(input, first + piece, piece, number + 1);
        detail::StagedSlot& slot = slot_of(number);
        await(slot.copied_in);
        host_run(call, slot, input.lengths(first, piece), output.lengths(first, piece),
                 std::min(piece, all - first));
        deliver(call, output, first, piece, slot);
    }
    await(cuda::Event(stages_->to_device));
}

DPTK_INLINE detail::StagedSlot& StagedTransport::slot_of(std::size_t number) {
    return stages_->slots[number % stages_->slots.size()];
}

DPTK_INLINE void StagedTransport::reserve(std::size_t bytes) {
    for (detail::StagedSlot& slot : stages_->slots) {
        if (slot.input.size() >= bytes) continue;
        slot.input = cuda::PinnedBuffer<std::byte>(bytes);
        slot.output = cuda::PinnedBuffer<std::byte>(bytes);
    }
}

DPTK_INLINE void StagedTransport::fetch(const detail::StagedParts& input, std::size_t first,
                                        std::size_t count, std::size_t number) {
    detail::StagedSlot& slot = slot_of(number);
    slot.copied_out.order_before(stages_->from_device);
    input.for_each(first, count, [&](const Buffer& part, std::size_t before) {
        cuda::detail::copy_bytes(slot.input.data() + before * part.element_size(), part.data, part.bytes(),
                                 stages_->from_device);
    });
    slot.copied_in.record(stages_->from_device);
}

DPTK_INLINE void StagedTransport::host_run(const Collective& call, detail::StagedSlot& slot,
                                           const std::vector<std::size_t>& input_lengths,
                                           const std::vector<std::size_t>& output_lengths,
                                           std::size_t length) {
    const auto total = [](const std::vector<std::size_t>& lengths) {
        std::size_t sum = 0;
        for (const std::size_t each : lengths) sum += each;
        return sum;
    };
    const auto staged = [&](const Buffer& like, cuda::PinnedBuffer<std::byte>& memory, std::size_t count) {
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
    if (call.verb == Verb::all_to_all_uneven) {
        piece.counts = input_lengths;
        piece.output_counts = output_lengths;
    }
    host_->run(piece);
}

DPTK_INLINE void StagedTransport::deliver(const Collective& call, const detail::StagedParts& output,
                                          std::size_t first, std::size_t count, detail::StagedSlot& slot) {
    const std::byte* from = has_part_a_rank(call.verb) ? slot.output.data() : slot.input.data();
    output.for_each(first, count, [&](const Buffer& part, std::size_t before) {
        cuda::detail::copy_bytes(part.data, from + before * part.element_size(), part.bytes(),
                                 stages_->to_device);
    });
    slot.copied_out.record(stages_->to_device);
}

DPTK_INLINE Buffer StagedTransport::bytes_at(void* data, std::size_t bytes) {
    return {data, bytes, DType::u8, {}, 1};
}

DPTK_INLINE int StagedTransport::send_pieces(const Message& message) {
    std::size_t bytes = message.buffer.bytes();
    reserve(std::min(bytes, piece_bytes));
    host_->run({Verb::send, bytes_at(&bytes, sizeof bytes), message.peer, message.tag, {}});
    const detail::StagedParts whole(bytes_on_device(message.buffer), {bytes});
    if (bytes > 0) fetch(whole, 0, piece_bytes, 0);
    std::size_t number = 0;
    for (std::size_t first = 0; first < bytes; first += piece_bytes, ++number) {
        if (first + piece_bytes < bytes) fetch(whole, first + piece_bytes, piece_bytes, number + 1);
        detail::StagedSlot& slot = slot_of(number);
        await(slot.copied_in);
        const std::size_t length = std::min(piece_bytes, bytes - first);
        host_->run({Verb::send, bytes_at(slot.input.data(), length), message.peer, message.tag, {}});
    }
    return message.peer;
}

DPTK_INLINE int StagedTransport::receive_pieces(const Message& message) {
    const std::size_t bytes = message.buffer.bytes();
    std::size_t sent = 0;
    reserve(std::min(bytes, piece_bytes));
    const int peer = host_->run({Verb::recv, bytes_at(&sent, sizeof sent), message.peer, message.tag, {}});
    if (sent != bytes) {
        throw MismatchError(detail::text("rank ", rank(), ": recv expected ", bytes, " bytes from rank ",
                                         peer, ", got ", sent),
                            {.rank = rank(), .peer = peer});
    }
    const detail::StagedParts whole(bytes_on_device(message.buffer), {bytes});
    await(cuda::Event(stages_->from_device));  // waits until the stream no longer uses the memory
    std::size_t number = 0;
    for (std::size_t first = 0; first < bytes; first += piece_bytes, ++number) {
        detail::StagedSlot& slot = slot_of(number);
        await(slot.copied_out);
        const std::size_t length = std::min(piece_bytes, bytes - first);
        host_->run({Verb::recv, bytes_at(slot.input.data(), length), peer, message.tag, {}});
        whole.for_each(first, length, [&](const Buffer& part, std::size_t) {
            cuda::detail::copy_bytes(part.data, slot.input.data(), part.bytes(), stages_->to_device);
        });
        slot.copied_out.record(stages_->to_device);
    }
    await(cuda::Event(stages_->to_device));
    return peer;
}

DPTK_INLINE Buffer StagedTransport::bytes_on_device(const Buffer& buffer) {
    return {buffer.data, buffer.bytes(), DType::u8, buffer.device, 1};
}

}  // namespace DPTK_NAMESPACE
