/// Staging of device memory through the host: collectives and messages on device memory over any transport
/// for host memory. Data is sent through pinned (page-locked) staging buffers, in pieces, as a pipeline:
/// while one piece is sent between the ranks, the next one is copied from the device and the previous one
/// to the device. Several ranks may share a GPU. If the underlying transport accesses device memory itself,
/// as a CUDA-aware MPI does, it gets the device buffers directly.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/engine/engine.hpp"
#include "dptk/comm/transport.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/cuda/copy.hpp"
#include "dptk/core/cuda/event.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/cuda/stream.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// The parts of a buffer: one part per rank, a single part, or none if this rank does not use the buffer. A
/// piece of the buffer consists of the same range of elements of every part.
class StagedParts {
  public:
    StagedParts(const Buffer& whole, std::vector<std::size_t> counts);

    /// Returns the number of elements of the largest part.
    [[nodiscard]] std::size_t count() const noexcept;
    [[nodiscard]] std::size_t parts() const noexcept { return counts_.size(); }

    /// Returns how many elements each part has from `first` on, at most `count` each.
    [[nodiscard]] std::vector<std::size_t> lengths(std::size_t first, std::size_t count) const;

    /// Calls action(elements, offset) for each part with elements in that range; `offset` is their position
    /// in the piece.
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

/// A staging buffer for one piece: pinned memory, and events for the copies from and to the device.
struct StagedSlot {
    cuda::PinnedBuffer<std::byte> input;
    cuda::PinnedBuffer<std::byte> output;
    cuda::Event copied_in;   // recorded after the copy from the device
    cuda::Event copied_out;  // recorded after the copy to the device
};

}  // namespace detail

/// A Transport for the memory of one device that stages data through host memory.
class StagedTransport final : public Transport {
  public:
    /// Takes ownership of an engine for host memory that no other object uses; `device` is the CUDA device
    /// index.
    StagedTransport(detail::EngineOwner host, int device);

    [[nodiscard]] int rank() const override { return host_->rank(); }
    [[nodiscard]] int size() const override { return host_->size(); }
    [[nodiscard]] int local_rank() const override { return host_->local_rank(); }
    [[nodiscard]] int local_size() const override { return host_->local_size(); }
    [[nodiscard]] std::string_view backend() const noexcept override { return name_; }
    [[nodiscard]] TransportCapabilities capabilities() const override {
        return {.recv_any = true,
                .is_interruptible = true,
                .progresses_by_caller = host_->progresses_by_caller(),
                .device_memory = true};
    }
    [[nodiscard]] std::shared_ptr<detail::ControlPlane> control() const override { return host_->control(); }
    [[nodiscard]] bool callable_from_this_thread() const override {
        return host_->callable_from_this_thread();
    }

    DPTK_INLINE void run(const Collective& call) override;

    [[nodiscard]] DPTK_INLINE std::function<void()> prepare(const Collective& call) override;

    /// Sends or receives a message. Device memory is sent in pieces, after a message that contains its size.
    /// Returns the peer's rank. Blocks.
    DPTK_INLINE int transfer(const Message& message) override;

    DPTK_INLINE void send(const Buffer& buffer, int to, int tag) override;
    DPTK_INLINE void recv(const Buffer& buffer, int from, int tag) override;
    [[nodiscard]] DPTK_INLINE int recv_any(const Buffer& buffer, int tag) override;

    [[nodiscard]] DPTK_INLINE DeviceMemory allocate_on_device(std::size_t bytes) override;

  private:
    /// Maximum size of a piece.
    static constexpr std::size_t piece_bytes = std::size_t{4} << 20;

    struct Stages {
        cuda::Stream from_device;
        cuda::Stream to_device;
        /// One slot for the piece copied from the device, one for the piece being sent, one for the piece
        /// copied to the device.
        std::array<detail::StagedSlot, 3> slots;
    };

    void check_device(const Buffer& buffer) const;

    /// Records an event after all work that is on the stream now. Throws if the stream is being captured.
    [[nodiscard]] std::shared_ptr<cuda::Event> begin(StreamRef stream) const;

    /// Blocks the host until the event has completed. Throws if the job fails meanwhile.
    void await(const cuda::Event& event) const;

    void carry_out(const Collective& call, const cuda::Event& ready);

    [[nodiscard]] static bool is_in_place_verb(Verb verb) noexcept;

    /// Returns whether the underlying transport accesses the device memory of this call.
    [[nodiscard]] bool passes_device_memory(const Collective& call) const;

    /// Passes device memory to the underlying transport. That transport does not use CUDA streams, so the
    /// host first waits until the input is complete.
    void carry_out_in_place(const Collective& call);

    [[nodiscard]] std::vector<std::size_t> parts_of(std::size_t count, bool one_a_rank) const;

    [[nodiscard]] detail::StagedParts input_parts(const Collective& call) const;

    [[nodiscard]] detail::StagedParts output_parts(const Collective& call) const;

    /// Returns the number of elements per part of the whole call, which is the same on all ranks.
    [[nodiscard]] std::size_t length(const Collective& call, const detail::StagedParts& output) const;

    /// Returns whether the verb has one part per rank in its input, its output, or both. The result is the
    /// same on all ranks, so that all ranks choose the same piece size.
    [[nodiscard]] static bool has_part_a_rank(Verb verb) noexcept;

    void carry_out_in_pieces(const Collective& call);

    [[nodiscard]] detail::StagedSlot& slot_of(std::size_t number);

    void reserve(std::size_t bytes);

    /// Starts to copy a piece from the device, after the previous copy to the device from the same slot.
    void fetch(const detail::StagedParts& input, std::size_t first, std::size_t count, std::size_t number);

    /// Executes the call on one piece in host memory: `length` elements of each part.
    void host_run(const Collective& call, detail::StagedSlot& slot,
                  const std::vector<std::size_t>& input_lengths,
                  const std::vector<std::size_t>& output_lengths, std::size_t length);

    void deliver(const Collective& call, const detail::StagedParts& output, std::size_t first,
                 std::size_t count, detail::StagedSlot& slot);

    [[nodiscard]] static Buffer bytes_at(void* data, std::size_t bytes);

    int send_pieces(const Message& message);

    int receive_pieces(const Message& message);

    [[nodiscard]] static Buffer bytes_on_device(const Buffer& buffer);

    detail::EngineOwner host_;
    int device_;
    std::string name_;
    std::unique_ptr<Stages> stages_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/staged/transport.ipp"
#endif
