/// Collectives over one MPI communicator, by MPI's own algorithms. Open MPI and MPICH, MPI 3.1 and newer;
/// counts beyond 2^31 go in pieces.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "dptk/comm/algorithms/run.hpp"
#include "dptk/comm/collective.hpp"
#include "dptk/comm/mpi/control.hpp"
#include "dptk/comm/mpi/environment.hpp"
#include "dptk/comm/mpi/types.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// An MPI communicator that we own: freed when dropped, unless MPI has ended before.
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
inline constexpr bool mpi_reduces_in_place_at_any_root = false;  // MPICH 4.0 crashes where it is not rank 0
#else
inline constexpr bool mpi_reduces_in_place_at_any_root = true;
#endif

/// Whether this MPI reads and writes the memory of CUDA devices. Open MPI and MPICH both have this function,
/// but not always its declaration.
[[nodiscard]] inline bool mpi_is_cuda_aware() {
    static const bool aware = [] {
        const auto ask = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support"));
        return ask != nullptr && ask() == 1;
    }();
    return aware;
}

}  // namespace detail

/// A Transport over an MPI communicator. Moves, and is not copied.
class MpiTransport {
  public:
    /// Works on a duplicate of `comm` with its own error handler, and leaves `comm` alone. Collective over
    /// it.
    explicit MpiTransport(MPI_Comm comm, MpiOptions options = {});

    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return size_; }
    [[nodiscard]] int local_rank() const noexcept { return local_rank_; }
    [[nodiscard]] int local_size() const noexcept { return local_size_; }
    [[nodiscard]] std::string_view backend() const noexcept { return "mpi"; }
    [[nodiscard]] std::shared_ptr<detail::ControlPlane> control() const { return control_; }

    /// The communicator that carries the calls; it stays ours.
    [[nodiscard]] MPI_Comm comm() const noexcept { return comm_.get(); }

    [[nodiscard]] bool progresses_by_caller() const noexcept { return progresses_by_caller_; }
    [[nodiscard]] bool callable_from_this_thread() const;

    /// One message to MPI, however long.
    void send(const Buffer& buffer, int to, int tag);

    /// Throws MismatchError where the message has another size.
    void recv(const Buffer& buffer, int from, int tag) { static_cast<void>(receive(buffer, from, tag)); }

    [[nodiscard]] int recv_any(const Buffer& buffer, int tag) { return receive(buffer, MPI_ANY_SOURCE, tag); }

    void send_recv(const Buffer& out, int to, const Buffer& in, int from, int tag);

    /// By MPI_Isend and MPI_Irecv.
    [[nodiscard]] std::shared_ptr<WorkState> start(const Message& message);

    /// MPI has no 16-bit floating-point types, its user functions know nothing but their arguments, and Open
    /// MPI's vectorised sums of short integers saturate where others wrap around.
    [[nodiscard]] static bool reduces(DType dtype, const Reduction& reduction) noexcept {
        const bool short_float = dtype == DType::f16 || dtype == DType::bf16;
        const bool short_integer = !is_floating(dtype) && dtype_size(dtype) <= 2;
        const bool as_it_is = reduction.user == nullptr && !reduction.weight;
        return as_it_is && !short_float && !(short_integer && reduction.op == ReduceOp::sum);
    }

    /// What MPI does to the end, and in place: an average's division is the host's.
    [[nodiscard]] bool takes_device_memory(const Collective& call) const;

    void all_reduce(const Buffer& data, const Reduction& reduction);

    void reduce(const Buffer& data, const Reduction& reduction, int root);

    void broadcast(const Buffer& data, int root);

    void all_gather(const Buffer& input, const Buffer& output);

    void all_gather_uneven(const Buffer& input, const Buffer& output, std::span<const std::size_t> counts);

    void gather(const Buffer& input, const Buffer& output, int root);

    void scatter(const Buffer& input, const Buffer& output, int root);

    void reduce_scatter(const Buffer& input, const Buffer& output, const Reduction& reduction);

    void all_to_all(const Buffer& input, const Buffer& output);

    void barrier();

    /// Gives MPI the time to go on with what was started in this process. Returns whether there is any.
    [[nodiscard]] bool progress();

    /// Hands all_reduce, broadcast, all_gather and barrier to MPI without waiting; null for the others.
    [[nodiscard]] std::shared_ptr<WorkState> start(const Collective& call);

    [[nodiscard]] MpiTransport duplicate();

    /// Blocks until all of these ranks have called it.
    [[nodiscard]] MpiTransport subgroup(std::span<const int> ranks, std::string_view);

  private:
    static constexpr std::size_t largest_count = std::size_t{1} << 30;

    /// How many elements one rank gives or gets, as MPI counts them.
    struct Counts {
        explicit Counts(const Buffer& each);

        /// Whether `parts` times as many can be addressed by an int, as some algorithms of MPIs do inside.
        [[nodiscard]] bool fit(int parts) const noexcept;

        std::size_t all;
        int count;
        MPI_Datatype type;
    };

    MpiTransport(const MpiTransport& other, detail::OwnedMpiComm comm);

    MpiTransport(detail::OwnedMpiComm comm, MpiOptions options);

    MpiTransport(detail::OwnedMpiComm comm, std::shared_ptr<detail::ControlPlane> control);

    void find_place();

    [[nodiscard]] static detail::OwnedMpiComm duplicate_of(MPI_Comm comm);

    /// Calls action(piece, count, type) for pieces whose count fits into MPI's int; once, with count 0, for
    /// none.
    template <class Action>
    static void in_pieces(const Buffer& buffer, Action&& action) {
        const MPI_Datatype type = detail::mpi_datatype(buffer.dtype);
        const std::size_t all = detail::mpi_count(buffer);
        const std::size_t bytes = buffer.dtype == DType::opaque ? 1 : buffer.element_size();
        std::size_t done = 0;
        do {
            const std::size_t count = std::min(all - done, largest_count);
            action(static_cast<std::byte*>(buffer.data) + done * bytes, static_cast<int>(count), type);
            done += count;
        } while (done < all);
    }

    /// Where counts are too large for MPI's own verb.
    void over_messages(const Collective& call);

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
