/// MPI transport: collectives over one MPI communicator, by MPI's own algorithms. Supports Open MPI and
/// MPICH, MPI 3.1 and newer. Counts above 2^30 are split into pieces.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/mpi/control.hpp"
#include "dptk/comm/mpi/environment.hpp"
#include "dptk/comm/mpi/types.hpp"
#include "dptk/comm/transport.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// Owner of an MPI communicator. The destructor frees it, unless MPI is finalized or the job has failed.
class OwnedMpiComm {
  public:
    explicit OwnedMpiComm(MPI_Comm comm);

    OwnedMpiComm(OwnedMpiComm&& other) noexcept : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}

    OwnedMpiComm& operator=(OwnedMpiComm&& other) noexcept;

    OwnedMpiComm(const OwnedMpiComm&) = delete;
    OwnedMpiComm& operator=(const OwnedMpiComm&) = delete;

    ~OwnedMpiComm();

    [[nodiscard]] MPI_Comm get() const noexcept { return comm_; }

  private:
    MPI_Comm comm_;
};

#ifdef MPICH_VERSION
// MPICH 4.0 crashes in MPI_Reduce with MPI_IN_PLACE if the root is not rank 0.
inline constexpr bool mpi_reduces_in_place_at_any_root = false;
#else
inline constexpr bool mpi_reduces_in_place_at_any_root = true;
#endif

/// Whether this MPI is CUDA-aware. Looks up MPIX_Query_cuda_support at run time, because Open MPI and MPICH
/// do not always declare this function.
[[nodiscard]] inline bool mpi_is_cuda_aware() {
    static const bool aware = [] {
        const auto ask = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support"));
        return ask != nullptr && ask() == 1;
    }();
    return aware;
}

}  // namespace detail

/// A Transport over an MPI communicator. Movable, not copyable. MPI executes the collectives, except
/// reductions that it does not support, all_to_all with different counts, and all_reduce with a chosen
/// algorithm.
class MpiTransport final : public Transport {
  public:
    /// Creates a transport over a duplicate of `comm`, with its own error handler; `comm` itself is not
    /// changed. Collective over `comm`.
    explicit MpiTransport(MPI_Comm comm, MpiOptions options = {});

    [[nodiscard]] int rank() const noexcept override { return rank_; }
    [[nodiscard]] int size() const noexcept override { return size_; }
    [[nodiscard]] int local_rank() const noexcept override { return local_rank_; }
    [[nodiscard]] int local_size() const noexcept override { return local_size_; }
    [[nodiscard]] std::string_view backend() const noexcept override { return "mpi"; }
    [[nodiscard]] std::shared_ptr<detail::ControlPlane> control() const override { return control_; }

    /// The communicator that carries the calls. The transport keeps ownership.
    [[nodiscard]] MPI_Comm comm() const noexcept { return comm_.get(); }

    [[nodiscard]] DPTK_INLINE TransportCapabilities capabilities() const override;
    [[nodiscard]] DPTK_INLINE bool callable_from_this_thread() const override;

    /// Sends the buffer as one MPI message of any length. Blocks.
    DPTK_INLINE void send(const Buffer& buffer, int to, int tag) override;

    /// Receives one message. Blocks. Throws MismatchError if the message and `buffer` differ in size.
    void recv(const Buffer& buffer, int from, int tag) override {
        static_cast<void>(receive(buffer, from, tag));
    }

    /// Messages of collectives have tags above max_tag. With any_tag, a rank whose first message is one of
    /// these is passed over.
    [[nodiscard]] DPTK_INLINE std::optional<MessageInfo> probe(int from, int tag) override;

    [[nodiscard]] int recv_any(const Buffer& buffer, int tag) override {
        return receive(buffer, MPI_ANY_SOURCE, tag);
    }

    DPTK_INLINE void send_recv(const Buffer& out, int to, const Buffer& in, int from, int tag) override;

    /// Starts the message with MPI_Isend or MPI_Irecv.
    [[nodiscard]] DPTK_INLINE std::shared_ptr<WorkState> start_message(const Message& message) override;

    DPTK_INLINE void run(const Collective& call) override;

    /// Whether MPI can carry out the call on device memory. MPI has no averages, and dptk can divide their
    /// sums only in host memory.
    [[nodiscard]] DPTK_INLINE bool takes_device_memory(const Collective& call) const override;

    /// Lets MPI progress the operations that were started in this process. Returns whether any are still
    /// pending.
    [[nodiscard]] DPTK_INLINE bool progress() override;

    /// Starts all_reduce, broadcast, all_gather or barrier as a nonblocking MPI operation. Returns null for
    /// other calls.
    [[nodiscard]] DPTK_INLINE std::shared_ptr<WorkState> start(const Collective& call) override;

    [[nodiscard]] DPTK_INLINE std::unique_ptr<Transport> duplicate() override;

    /// Creates a transport over `ranks`. Blocks until all of these ranks have made the call.
    [[nodiscard]] DPTK_INLINE std::unique_ptr<Transport> subgroup(std::span<const int> ranks,
                                                                  std::string_view name) override;

  private:
    static constexpr std::size_t largest_count = std::size_t{1} << 30;

    /// The number of elements that one rank sends or receives, in MPI's terms.
    struct Counts {
        explicit Counts(const Buffer& each);

        /// Whether `parts` times the count fits into an int. Some MPI algorithms use such offsets.
        [[nodiscard]] bool fit(int parts) const noexcept;

        std::size_t all;
        int count;
        MPI_Datatype type;
    };

    MpiTransport(const MpiTransport& other, detail::OwnedMpiComm comm);

    MpiTransport(detail::OwnedMpiComm comm, MpiOptions options);

    MpiTransport(detail::OwnedMpiComm comm, std::shared_ptr<detail::ControlPlane> control);

    void find_ranks();

    [[nodiscard]] static detail::OwnedMpiComm duplicate_of(MPI_Comm comm);

    /// Calls action(piece, count, type) for pieces of the buffer whose count fits into an int. For an empty
    /// buffer, calls `action` once with count 0.
    template <class Action>
    static void in_pieces(const Buffer& buffer, Action&& action) {
        const MPI_Datatype type = detail::mpi_datatype(buffer.dtype);
        const std::size_t all = detail::mpi_count(buffer);
        if (all > largest_count) return in_several_pieces(buffer, all, type, action);
        action(buffer.data, static_cast<int>(all), type);
    }

    template <class Action>
    [[gnu::noinline]] static void in_several_pieces(const Buffer& buffer, std::size_t all, MPI_Datatype type,
                                                    Action&& action) {
        const std::size_t bytes = buffer.dtype == DType::opaque ? 1 : buffer.element_size();
        for (std::size_t done = 0; done < all; done += largest_count) {
            const std::size_t count = std::min(all - done, largest_count);
            action(static_cast<std::byte*>(buffer.data) + done * bytes, static_cast<int>(count), type);
        }
    }

    /// Whether MPI carries out the reduction. MPI has no 16-bit floating-point types, its user-defined
    /// functions have no context argument, and Open MPI's vectorized sums of short integers saturate
    /// instead of wrapping around.
    [[nodiscard]] static bool supports(DType dtype, const Reduction& reduction) noexcept {
        if (reduction.user != nullptr || reduction.weight) return false;
        switch (dtype) {
            case DType::f16:
            case DType::bf16: return false;
            case DType::boolean:
            case DType::i8:
            case DType::u8:
            case DType::i16:
            case DType::u16: return reduction.op != ReduceOp::sum;
            default: return true;
        }
    }

    // The collectives. If the counts are too large for MPI's, they are composed of messages.
    void all_reduce(const Collective& call);
    void reduce(const Collective& call);
    void broadcast(const Buffer& data, int root);
    void all_gather(const Collective& call);
    void all_gather_uneven(const Collective& call);
    void gather(const Collective& call);
    void scatter(const Collective& call);
    void reduce_scatter(const Collective& call);
    void all_to_all(const Collective& call);

    [[nodiscard]] std::size_t unsigned_size() const noexcept { return static_cast<std::size_t>(size_); }

    [[nodiscard]] static Buffer part(const Buffer& of, int rank, std::size_t count);

    void broadcast_parts(const Buffer& output, std::span<const std::size_t> counts);

    int receive(const Buffer& buffer, int from, int tag);

    void check_received(int result, const MPI_Status& status, const Buffer& buffer, int from,
                        std::string_view call) const;

    static void check_size(const MPI_Status& status, const Buffer& buffer, int rank);

    detail::OwnedMpiComm comm_;
    std::shared_ptr<detail::ControlPlane> control_;
    bool progresses_by_caller_ = !MpiEnvironment::get().allows_threads();
    int rank_ = 0;
    int size_ = 1;
    int local_rank_ = 0;
    int local_size_ = 1;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/mpi/transport.ipp"
#endif
