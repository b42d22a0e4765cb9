/// Collectives on device memory over whatever carries host memory. What is sent goes through page-locked host
/// memory, in pieces: while one travels between the ranks, the next one comes from the device and the last
/// one goes there. Several ranks may be on one GPU. Where the transport below reaches device memory itself,
/// as a CUDA-aware MPI does, it gets the buffers as they are.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/detail/channel.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/cuda/copy.hpp"
#include "dptk/core/cuda/event.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/cuda/stream.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// A buffer as the parts that one rank gives or gets; a piece of it is as many elements of each part.
class StagedParts {
  public:
    StagedParts(const Buffer& whole, std::vector<std::size_t> counts);

    /// The largest part's.
    [[nodiscard]] std::size_t count() const noexcept;
    [[nodiscard]] std::size_t parts() const noexcept { return counts_.size(); }

    /// How many elements each part has from `first` on, at most `count`.
    [[nodiscard]] std::vector<std::size_t> lengths(std::size_t first, std::size_t count) const;

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
    StagedTransport(std::unique_ptr<detail::Channel> host, int device);

    [[nodiscard]] int rank() const { return host_->rank(); }
    [[nodiscard]] int size() const { return host_->size(); }
    [[nodiscard]] int local_rank() const { return host_->local_rank(); }
    [[nodiscard]] int local_size() const { return host_->local_size(); }
    [[nodiscard]] std::string_view backend() const noexcept { return name_; }
    [[nodiscard]] std::shared_ptr<detail::ControlPlane> control() const { return host_->job().control; }
    [[nodiscard]] bool callable_from_this_thread() const { return host_->callable_from_this_thread(); }

    [[nodiscard]] bool progresses_by_caller() const { return host_->progresses_by_caller(); }

    /// Nothing goes on by itself where no background thread may communicate.
    [[nodiscard]] std::shared_ptr<WorkState> start(const Collective&) { return nullptr; }

    [[nodiscard]] std::function<void()> prepare(const Collective& call);

    /// A message's size goes before it, since it is cut into pieces.
    int transfer(const Message& message);

    void send(const Buffer& buffer, int to, int tag);
    void recv(const Buffer& buffer, int from, int tag);
    [[nodiscard]] int recv_any(const Buffer& buffer, int tag);

    [[nodiscard]] DeviceMemory allocate_on_device(std::size_t bytes);

  private:
    /// Of what is under way at once, at most.
    static constexpr std::size_t piece_bytes = std::size_t{4} << 20;

    struct Stages {
        cuda::Stream from_device;
        cuda::Stream to_device;
        /// One piece comes, one travels, one goes.
        std::array<detail::StagedSlot, 3> slots;
    };

    void check_device(const Buffer& buffer) const;

    /// What the stream has been given so far.
    [[nodiscard]] std::shared_ptr<cuda::Event> begin(StreamRef stream) const;

    /// On the host, as long as the job is well.
    void await(const cuda::Event& event) const;

    void carry_out(const Collective& call, const cuda::Event& ready);

    [[nodiscard]] static bool is_in_place_verb(Verb verb) noexcept;

    [[nodiscard]] bool takes_device_memory(const Collective& call) const;

    /// The transport below knows no streams: before it is called, all that is to be there must be.
    void carry_out_in_place(const Collective& call);

    [[nodiscard]] std::vector<std::size_t> parts_of(std::size_t count, bool one_a_rank) const;

    [[nodiscard]] detail::StagedParts input_parts(const Collective& call) const;

    [[nodiscard]] detail::StagedParts output_parts(const Collective& call) const;

    /// How many elements of a part all ranks are through with when the call is done.
    [[nodiscard]] std::size_t length(const Collective& call, const detail::StagedParts& output) const;

    /// On one side or on both. The same on all ranks, and so is the size of a piece.
    [[nodiscard]] static bool has_part_a_rank(Verb verb) noexcept;

    void carry_out_in_pieces(const Collective& call);

    [[nodiscard]] detail::StagedSlot& slot_of(std::size_t number);

    void reserve(std::size_t bytes);

    /// Starts to copy a piece from the device, behind the copy to the device that its slot was used for
    /// before.
    void fetch(const detail::StagedParts& input, std::size_t first, std::size_t count, std::size_t number);

    /// The call on one piece: `length` elements of each part.
    void host_run(const Collective& call, detail::StagedSlot& slot,
                  const std::vector<std::size_t>& input_lengths,
                  const std::vector<std::size_t>& output_lengths, std::size_t length);

    void deliver(const Collective& call, const detail::StagedParts& output, std::size_t first,
                 std::size_t count, detail::StagedSlot& slot);

    [[nodiscard]] static Buffer bytes_at(void* data, std::size_t bytes);

    int send_pieces(const Message& message);

    int receive_pieces(const Message& message);

    [[nodiscard]] static Buffer bytes_on_device(const Buffer& buffer);

    std::unique_ptr<detail::Channel> host_;
    int device_;
    std::string name_;
    std::unique_ptr<Stages> stages_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/staged/transport.ipp"
#endif
