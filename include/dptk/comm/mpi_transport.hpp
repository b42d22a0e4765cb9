/// Collectives over one MPI communicator, by MPI's own algorithms. Open MPI and MPICH, MPI 3.1 and newer;
/// counts beyond 2^31 go in pieces.
#pragma once

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/local_reduce.hpp"
#include "dptk/comm/mpi_control.hpp"
#include "dptk/comm/mpi_environment.hpp"
#include "dptk/comm/work.hpp"

namespace dptk {

namespace detail {

[[nodiscard]] inline MPI_Datatype mpi_datatype(DType dtype) {
    switch (dtype) {
        case DType::boolean:  // 0 or 1: the bitwise operations on bytes are the logical ones
        case DType::u8: return MPI_UINT8_T;
        case DType::i8: return MPI_INT8_T;
        case DType::i16: return MPI_INT16_T;
        case DType::u16: return MPI_UINT16_T;
        case DType::i32: return MPI_INT32_T;
        case DType::u32: return MPI_UINT32_T;
        case DType::i64: return MPI_INT64_T;
        case DType::u64: return MPI_UINT64_T;
        case DType::f32: return MPI_FLOAT;
        case DType::f64: return MPI_DOUBLE;
    }
    throw ArgumentError(text("no MPI datatype for ", dtype_name(dtype)));
}

[[nodiscard]] inline MPI_Op mpi_op(ReduceOp op) {
    switch (op) {
        case ReduceOp::sum:
        case ReduceOp::avg: return MPI_SUM;
        case ReduceOp::product: return MPI_PROD;
        case ReduceOp::min: return MPI_MIN;
        case ReduceOp::max: return MPI_MAX;
        case ReduceOp::band: return MPI_BAND;
        case ReduceOp::bor: return MPI_BOR;
        case ReduceOp::bxor: return MPI_BXOR;
    }
    throw ArgumentError(text("no MPI operation for ", reduce_op_name(op)));
}

/// An MPI communicator that we own: freed when dropped, unless MPI has ended before.
class OwnedMpiComm {
  public:
    explicit OwnedMpiComm(MPI_Comm comm) : comm_(comm) { MpiEnvironment::get().communicator_opened(); }

    OwnedMpiComm(OwnedMpiComm&& other) noexcept : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}

    OwnedMpiComm& operator=(OwnedMpiComm&& other) noexcept {
        std::swap(comm_, other.comm_);
        return *this;
    }

    OwnedMpiComm(const OwnedMpiComm&) = delete;
    OwnedMpiComm& operator=(const OwnedMpiComm&) = delete;

    ~OwnedMpiComm() {
        if (comm_ == MPI_COMM_NULL) return;
        MpiEnvironment& environment = MpiEnvironment::get();
        environment.communicator_closed();
        // Freeing is collective: where the job is broken, the others do not come.
        if (!environment.health()->failed() && !MpiEnvironment::is_finalized()) MPI_Comm_free(&comm_);
    }

    [[nodiscard]] MPI_Comm get() const noexcept { return comm_; }

  private:
    MPI_Comm comm_;
};

/// A collective that MPI has been given and that is progressed by whoever waits for it.
class MpiWork final : public WorkState {
  public:
    std::vector<MPI_Request> requests;
    /// Divided by `divisor` in the end, where that is not 0.
    Buffer average = {};
    int divisor = 0;

    bool wait(std::chrono::nanoseconds timeout) override {
        if (ended_) return true;
        const bool forever = timeout == std::chrono::nanoseconds::max();
        const auto begin = std::chrono::steady_clock::now();
        const int count = static_cast<int>(requests.size());
        int ended = 0;
        do {
            check(forever ? MPI_Waitall(count, requests.data(), MPI_STATUSES_IGNORE)
                          : MPI_Testall(count, requests.data(), &ended, MPI_STATUSES_IGNORE));
            ended_ = ended_ || forever || ended != 0;
        } while (!ended_ && std::chrono::steady_clock::now() - begin < timeout);
        if (ended_ && divisor != 0 && !error_) divide(average, divisor);
        return ended_;
    }

    std::exception_ptr error() override {
        if (error_) seen_ = true;
        return error_;
    }

    std::exception_ptr unseen_error() override { return seen_ ? nullptr : error_; }

  private:
    void check(int status) {
        try {
            check_mpi(status, "MPI_Wait");
        } catch (const BackendError& error) {
            MpiEnvironment::get().health()->fail(error.what());
            error_ = std::current_exception();
            ended_ = true;
        }
    }

    bool ended_ = false;
    bool seen_ = false;
    std::exception_ptr error_;
};

}  // namespace detail

class MpiTransport {
  public:
    /// Works on a duplicate of `comm` with its own error handler, and leaves `comm` alone. Collective over
    /// it.
    explicit MpiTransport(MPI_Comm comm, MpiOptions options = {})
        : comm_(duplicate_of(comm)), control_(detail::MpiControl(comm_.get(), std::move(options)).make()) {
        check_mpi(MPI_Comm_rank(comm_.get(), &rank_), "MPI_Comm_rank");
        check_mpi(MPI_Comm_size(comm_.get(), &size_), "MPI_Comm_size");
        MPI_Comm host = MPI_COMM_NULL;
        check_mpi(MPI_Comm_split_type(comm_.get(), MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host),
                  "MPI_Comm_split_type");
        MPI_Comm_rank(host, &local_rank_);
        MPI_Comm_size(host, &local_size_);
        MPI_Comm_free(&host);
    }

    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return size_; }
    [[nodiscard]] int local_rank() const noexcept { return local_rank_; }
    [[nodiscard]] int local_size() const noexcept { return local_size_; }
    [[nodiscard]] std::string_view backend() const noexcept { return "mpi"; }
    [[nodiscard]] std::shared_ptr<ControlPlane> control() const { return control_; }

    /// The communicator that carries the calls; it stays ours.
    [[nodiscard]] MPI_Comm comm() const noexcept { return comm_.get(); }

    [[nodiscard]] bool progresses_by_caller() const noexcept { return progresses_by_caller_; }
    [[nodiscard]] bool callable_from_this_thread() const {
        return MpiEnvironment::get().callable_from_this_thread();
    }

    void send(const Buffer& buffer, int to, int tag) {
        in_pieces(buffer, [&](const Buffer& piece, int count) {
            check_mpi(MPI_Send(piece.data, count, detail::mpi_datatype(piece.dtype), to, tag, comm_.get()),
                      "MPI_Send");
        });
    }

    void recv(const Buffer& buffer, int from, int tag) {
        in_pieces(buffer, [&](const Buffer& piece, int count) {
            check_mpi(MPI_Recv(piece.data, count, detail::mpi_datatype(piece.dtype), from, tag, comm_.get(),
                               MPI_STATUS_IGNORE),
                      "MPI_Recv");
        });
    }

    void all_reduce(const Buffer& data, ReduceOp op) {
        in_pieces(data, [&](const Buffer& piece, int count) {
            check_mpi(MPI_Allreduce(MPI_IN_PLACE, piece.data, count, detail::mpi_datatype(piece.dtype),
                                    detail::mpi_op(op), comm_.get()),
                      "MPI_Allreduce");
        });
        if (op == ReduceOp::avg) detail::divide(data, size_);
    }

    void broadcast(const Buffer& data, int root) {
        in_pieces(data, [&](const Buffer& piece, int count) {
            check_mpi(MPI_Bcast(piece.data, count, detail::mpi_datatype(piece.dtype), root, comm_.get()),
                      "MPI_Bcast");
        });
    }

    void all_gather(const Buffer& input, const Buffer& output) {
        place_own_part(input, output);
        if (input.count > largest_count) {
            for (int root = 0; root < size_; ++root) broadcast(part(output, root), root);
            return;
        }
        const MPI_Datatype type = detail::mpi_datatype(input.dtype);
        check_mpi(MPI_Allgather(MPI_IN_PLACE, 0, type, output.data, static_cast<int>(input.count), type,
                                comm_.get()),
                  "MPI_Allgather");
    }

    void barrier() { check_mpi(MPI_Barrier(comm_.get()), "MPI_Barrier"); }

    /// Hands the call to MPI without waiting for it.
    [[nodiscard]] std::shared_ptr<WorkState> start(const Collective& call) {
        auto work = std::make_shared<detail::MpiWork>();
        const auto request = [&] { return &work->requests.emplace_back(MPI_REQUEST_NULL); };
        switch (call.verb) {
            case Verb::all_reduce:
                in_pieces(call.output, [&](const Buffer& piece, int count) {
                    check_mpi(
                        MPI_Iallreduce(MPI_IN_PLACE, piece.data, count, detail::mpi_datatype(piece.dtype),
                                       detail::mpi_op(call.op), comm_.get(), request()),
                        "MPI_Iallreduce");
                });
                if (call.op == ReduceOp::avg) {
                    work->average = call.output;
                    work->divisor = size_;
                }
                break;
            case Verb::broadcast: start_broadcast(call.output, call.root, *work); break;
            case Verb::all_gather:
                place_own_part(call.input, call.output);
                for (int root = 0; root < size_; ++root)
                    start_broadcast(part(call.output, root), root, *work);
                break;
            case Verb::barrier: check_mpi(MPI_Ibarrier(comm_.get(), request()), "MPI_Ibarrier"); break;
            case Verb::duplicate: throw ArgumentError("duplicate() cannot be started in the background");
        }
        return work;
    }

    [[nodiscard]] MpiTransport duplicate() { return MpiTransport(*this, duplicate_of(comm_.get())); }

  private:
    static constexpr std::size_t largest_count = std::size_t{1} << 30;

    MpiTransport(const MpiTransport& other, detail::OwnedMpiComm comm)
        : comm_(std::move(comm)),
          control_(other.control_),
          rank_(other.rank_),
          size_(other.size_),
          local_rank_(other.local_rank_),
          local_size_(other.local_size_) {}

    [[nodiscard]] static detail::OwnedMpiComm duplicate_of(MPI_Comm comm) {
        static_cast<void>(MpiEnvironment::get());
        MPI_Comm copy = MPI_COMM_NULL;
        check_mpi(MPI_Comm_dup(comm, &copy), "MPI_Comm_dup");
        MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
        return detail::OwnedMpiComm(copy);
    }

    /// Calls action(piece, count) for pieces whose count fits into MPI's int; once, with count 0, for none.
    template <class Action>
    static void in_pieces(const Buffer& buffer, Action&& action) {
        std::size_t done = 0;
        do {
            const std::size_t count = std::min(buffer.count - done, largest_count);
            action(buffer.slice(done, count), static_cast<int>(count));
            done += count;
        } while (done < buffer.count);
    }

    void start_broadcast(const Buffer& data, int root, detail::MpiWork& work) {
        in_pieces(data, [&](const Buffer& piece, int count) {
            check_mpi(MPI_Ibcast(piece.data, count, detail::mpi_datatype(piece.dtype), root, comm_.get(),
                                 &work.requests.emplace_back(MPI_REQUEST_NULL)),
                      "MPI_Ibcast");
        });
    }

    [[nodiscard]] Buffer part(const Buffer& output, int rank) const {
        const std::size_t count = output.count / static_cast<std::size_t>(size_);
        return output.slice(static_cast<std::size_t>(rank) * count, count);
    }

    void place_own_part(const Buffer& input, const Buffer& output) const {
        const Buffer own = part(output, rank_);
        if (own.data != input.data && input.bytes() != 0) std::memcpy(own.data, input.data, input.bytes());
    }

    detail::OwnedMpiComm comm_;
    std::shared_ptr<ControlPlane> control_;
    bool progresses_by_caller_ = !MpiEnvironment::get().allows_threads();
    int rank_ = 0;
    int size_ = 1;
    int local_rank_ = 0;
    int local_size_ = 1;
};

}  // namespace dptk
