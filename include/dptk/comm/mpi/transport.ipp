#pragma once

#include "dptk/comm/mpi/transport.hpp"

#include <string>
#include <vector>

#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/comm/algorithms/run.hpp"
#include "dptk/comm/mpi/work.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE OwnedMpiComm::OwnedMpiComm(MPI_Comm comm) : comm_(comm) {
    MpiEnvironment::get().communicator_opened();
}

DPTK_INLINE OwnedMpiComm& OwnedMpiComm::operator=(OwnedMpiComm&& other) noexcept {
    std::swap(comm_, other.comm_);
    return *this;
}

DPTK_INLINE OwnedMpiComm::~OwnedMpiComm() {
    if (comm_ == MPI_COMM_NULL) return;
    MpiEnvironment& environment = MpiEnvironment::get();
    environment.communicator_closed();
    // Freeing is collective: if the job has failed, the other ranks do not take part.
    if (!environment.job_state()->failed() && !MpiEnvironment::is_finalized()) MPI_Comm_free(&comm_);
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE MpiTransport::MpiTransport(MPI_Comm comm, MpiOptions options)
    : MpiTransport(duplicate_of(comm), std::move(options)) {}

DPTK_INLINE TransportCapabilities MpiTransport::capabilities() const {
    return {.recv_any = true,
            .probe = true,
            .start_message = true,
            .duplicate = true,
            .subgroup = true,
            .progress = true,
            .progresses_by_caller = progresses_by_caller_};
}

DPTK_INLINE bool MpiTransport::callable_from_this_thread() const {
    return MpiEnvironment::get().callable_from_this_thread();
}

DPTK_INLINE void MpiTransport::send(const Buffer& buffer, int to, int tag) {
    const detail::MpiMessageType message(buffer);
    check_mpi(MPI_Send(buffer.data, message.count(), message.type(), to, tag, comm_.get()), "MPI_Send");
}

DPTK_INLINE void MpiTransport::send_recv(const Buffer& out, int to, const Buffer& in, int from, int tag) {
    const detail::MpiMessageType sent(out);
    const detail::MpiMessageType received(in);
    MPI_Status status;
    check_received(MPI_Sendrecv(out.data, sent.count(), sent.type(), to, tag, in.data, received.count(),
                                received.type(), from, tag, comm_.get(), &status),
                   status, in, from, "MPI_Sendrecv");
}

DPTK_INLINE std::optional<MessageInfo> MpiTransport::probe(int from, int tag) {
    const auto first_from = [&](int source) -> std::optional<MessageInfo> {
        int is_there = 0;
        MPI_Status status;
        check_mpi(MPI_Iprobe(source == any_rank ? MPI_ANY_SOURCE : source, tag == any_tag ? MPI_ANY_TAG : tag,
                             comm_.get(), &is_there, &status),
                  "MPI_Iprobe");
        if (is_there == 0) return std::nullopt;
        MPI_Count bytes = 0;
        check_mpi(MPI_Get_elements_x(&status, MPI_BYTE, &bytes), "MPI_Get_elements_x");
        return MessageInfo{status.MPI_SOURCE, status.MPI_TAG, static_cast<std::size_t>(bytes)};
    };
    std::optional<MessageInfo> found = first_from(from);
    for (int source = 0; found && found->tag > max_tag && source < size_; ++source)
        if (from == any_rank && source != rank_) found = first_from(source);
    return found && found->tag <= max_tag ? found : std::nullopt;
}

DPTK_INLINE std::shared_ptr<WorkState> MpiTransport::start_message(const Message& message) {
    auto work = std::make_shared<detail::MpiWork>();
    const auto type = std::make_shared<detail::MpiMessageType>(message.buffer);
    MPI_Request* request = &work->requests.emplace_back(MPI_REQUEST_NULL);
    if (message.verb == Verb::send) {
        check_mpi(MPI_Isend(message.buffer.data, type->count(), type->type(), message.peer, message.tag,
                            comm_.get(), request),
                  "MPI_Isend");
        work->finish = [type](const MPI_Status&) {};
        return work;
    }
    const int from = message.peer == any_rank ? MPI_ANY_SOURCE : message.peer;
    work->receiver = rank_;
    work->expected_bytes = message.buffer.bytes();
    check_mpi(
        MPI_Irecv(message.buffer.data, type->count(), type->type(), from, message.tag, comm_.get(), request),
        "MPI_Irecv");
    work->finish = [this_rank = rank_, type, message, raw = work.get()](const MPI_Status& status) {
        raw->source = status.MPI_SOURCE;
        check_size(status, message.buffer, this_rank);
    };
    return work;
}

DPTK_INLINE bool MpiTransport::takes_device_memory(const Collective& call) const {
    const bool reduced_by_mpi = supports(call.input.dtype, call.reduction) && !call.reduction.averages() &&
                                !detail::has_own_mpi_op(call.reduction.op, call.input.dtype);
    return detail::mpi_is_cuda_aware() && (!reduces(call.verb) || reduced_by_mpi);
}

DPTK_INLINE void MpiTransport::run(const Collective& call) {
    if (reduces(call.verb) && !supports(call.input.dtype, call.reduction)) return Transport::run(call);
    if (call.verb == Verb::all_reduce) [[likely]]  // without the switch's jump, which is often mispredicted
        return all_reduce(call);
    switch (call.verb) {
        case Verb::reduce: return reduce(call);
        case Verb::broadcast: return broadcast(call.output, call.root);
        case Verb::all_gather: return all_gather(call);
        case Verb::all_gather_uneven: return all_gather_uneven(call);
        case Verb::gather: return gather(call);
        case Verb::scatter: return scatter(call);
        case Verb::reduce_scatter: return reduce_scatter(call);
        case Verb::all_to_all: return all_to_all(call);
        case Verb::barrier: return check_mpi(MPI_Barrier(comm_.get()), "MPI_Barrier");
        default: return Transport::run(call);
    }
}

DPTK_INLINE void MpiTransport::all_reduce(const Collective& call) {
    if (call.algorithm != AllReduceAlgorithm::automatic) return Transport::run(call);
    algorithms::place(call.output, call.input);
    in_pieces(call.output, [&](void* piece, int count, MPI_Datatype type) {
        check_mpi(MPI_Allreduce(MPI_IN_PLACE, piece, count, type,
                                detail::mpi_op(call.reduction.op, call.output.dtype), comm_.get()),
                  "MPI_Allreduce");
    });
    if (call.reduction.averages()) detail::divide(call.output, size_);
}

DPTK_INLINE void MpiTransport::reduce(const Collective& call) {
    const bool is_root = rank_ == call.root;
    if (is_root) algorithms::place(call.output, call.input);
    const Buffer& data = is_root ? call.output : call.input;
    in_pieces(data, [&](void* piece, int count, MPI_Datatype type) {
        const Buffer own{piece, static_cast<std::size_t>(count), data.dtype};
        const bool use_copy = is_root && call.root != 0 && !detail::mpi_reduces_in_place_at_any_root;
        const algorithms::Scratch copy(own.slice(0, use_copy ? own.count : 0));
        if (use_copy) detail::convert(copy.buffer(), own);
        const void* input = use_copy ? copy.buffer().data : is_root ? MPI_IN_PLACE : piece;
        check_mpi(MPI_Reduce(input, is_root ? piece : nullptr, count, type,
                             detail::mpi_op(call.reduction.op, data.dtype), call.root, comm_.get()),
                  "MPI_Reduce");
    });
    if (is_root && call.reduction.averages()) detail::divide(data, size_);
}

DPTK_INLINE void MpiTransport::broadcast(const Buffer& data, int root) {
    in_pieces(data, [&](void* piece, int count, MPI_Datatype type) {
        check_mpi(MPI_Bcast(piece, count, type, root, comm_.get()), "MPI_Bcast");
    });
}

DPTK_INLINE void MpiTransport::all_gather(const Collective& call) {
    algorithms::place(part(call.output, rank_, call.input.count), call.input);
    const Counts each(call.input);
    if (!each.fit(size_)) return broadcast_parts(call.output, std::vector(unsigned_size(), call.input.count));
    check_mpi(MPI_Allgather(MPI_IN_PLACE, 0, each.type, call.output.data, each.count, each.type, comm_.get()),
              "MPI_Allgather");
}

DPTK_INLINE void MpiTransport::all_gather_uneven(const Collective& call) {
    const algorithms::Slices parts(call.output, call.counts);
    algorithms::place(parts[rank_], call.input);
    const Counts all(call.output);
    if (!all.fit(1)) return broadcast_parts(call.output, call.counts);
    std::vector<int> lengths;
    std::vector<int> places;
    int place = 0;
    for (int rank = 0; rank < size_; ++rank) {
        lengths.push_back(static_cast<int>(detail::mpi_count(parts[rank])));
        places.push_back(place);
        place += lengths.back();
    }
    check_mpi(MPI_Allgatherv(MPI_IN_PLACE, 0, all.type, call.output.data, lengths.data(), places.data(),
                             all.type, comm_.get()),
              "MPI_Allgatherv");
}

DPTK_INLINE void MpiTransport::gather(const Collective& call) {
    const Counts each(call.input);
    if (!each.fit(1)) return Transport::run(call);
    const bool in_place =
        rank_ == call.root && part(call.output, call.root, call.input.count).data == call.input.data;
    check_mpi(MPI_Gather(in_place ? MPI_IN_PLACE : call.input.data, each.count, each.type, call.output.data,
                         each.count, each.type, call.root, comm_.get()),
              "MPI_Gather");
}

DPTK_INLINE void MpiTransport::scatter(const Collective& call) {
    const Counts each(call.output);
    if (!each.fit(1)) return Transport::run(call);
    const bool in_place =
        rank_ == call.root && part(call.input, call.root, call.output.count).data == call.output.data;
    check_mpi(MPI_Scatter(call.input.data, each.count, each.type, in_place ? MPI_IN_PLACE : call.output.data,
                          each.count, each.type, call.root, comm_.get()),
              "MPI_Scatter");
}

DPTK_INLINE void MpiTransport::reduce_scatter(const Collective& call) {
    const Buffer& output = call.output;
    if (size_ == 1) return algorithms::place(output, call.input);
    const Counts each(output);
    if (!each.fit(size_)) return Transport::run(call);          // MPIs count the whole input in an int
    const bool use_copy = detail::overlap(call.input, output);  // MPI forbids overlapping buffers
    const algorithms::Scratch own(use_copy ? output : output.slice(0, 0));
    const Buffer& result = use_copy ? own.buffer() : output;
    check_mpi(MPI_Reduce_scatter_block(call.input.data, result.data, each.count, each.type,
                                       detail::mpi_op(call.reduction.op, output.dtype), comm_.get()),
              "MPI_Reduce_scatter_block");
    if (call.reduction.averages()) detail::divide(result, size_);
    algorithms::place(output, result);
}

DPTK_INLINE void MpiTransport::all_to_all(const Collective& call) {
    const Counts each(call.input.slice(0, call.input.count / unsigned_size()));
    if (!each.fit(1)) return Transport::run(call);
    check_mpi(MPI_Alltoall(call.input.data, each.count, each.type, call.output.data, each.count, each.type,
                           comm_.get()),
              "MPI_Alltoall");
}

DPTK_INLINE bool MpiTransport::progress() {
    int found = 0;  // needed even without work: MPI may still transfer data of a call that has returned
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_.get(), &found, MPI_STATUS_IGNORE), "MPI_Iprobe");
    return MpiEnvironment::get().has_work();
}

DPTK_INLINE std::shared_ptr<WorkState> MpiTransport::start(const Collective& call) {
    auto work = std::make_shared<detail::MpiWork>();
    work->control = control_;
    const auto request = [&] { return &work->requests.emplace_back(MPI_REQUEST_NULL); };
    const auto start_broadcast = [&](const Buffer& data, int root) {
        in_pieces(data, [&](void* piece, int count, MPI_Datatype type) {
            check_mpi(MPI_Ibcast(piece, count, type, root, comm_.get(), request()), "MPI_Ibcast");
        });
    };
    switch (call.verb) {
        case Verb::all_reduce:
            if (!supports(call.input.dtype, call.reduction)) return nullptr;
            algorithms::place(call.output, call.input);
            in_pieces(call.output, [&](void* piece, int count, MPI_Datatype type) {
                check_mpi(MPI_Iallreduce(MPI_IN_PLACE, piece, count, type,
                                         detail::mpi_op(call.reduction.op, call.output.dtype), comm_.get(),
                                         request()),
                          "MPI_Iallreduce");
            });
            if (call.reduction.averages()) {
                work->finish = [data = call.output, size = size_](const MPI_Status&) {
                    detail::divide(data, size);
                };
            }
            return work;
        case Verb::broadcast: start_broadcast(call.output, call.root); return work;
        case Verb::all_gather:
            algorithms::place(part(call.output, rank_, call.input.count), call.input);
            for (int root = 0; root < size_; ++root)
                start_broadcast(part(call.output, root, call.input.count), root);
            return work;
        case Verb::barrier: check_mpi(MPI_Ibarrier(comm_.get(), request()), "MPI_Ibarrier"); return work;
        default: return nullptr;
    }
}

DPTK_INLINE std::unique_ptr<Transport> MpiTransport::duplicate() {
    return std::unique_ptr<Transport>(new MpiTransport(*this, duplicate_of(comm_.get())));
}

DPTK_INLINE std::unique_ptr<Transport> MpiTransport::subgroup(std::span<const int> ranks, std::string_view) {
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group part = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    check_mpi(MPI_Comm_group(comm_.get(), &all), "MPI_Comm_group");
    check_mpi(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &part), "MPI_Group_incl");
    const int result = MPI_Comm_create_group(comm_.get(), part, 0, &comm);
    MPI_Group_free(&part);
    MPI_Group_free(&all);
    check_mpi(result, "MPI_Comm_create_group");
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    return std::unique_ptr<Transport>(new MpiTransport(detail::OwnedMpiComm(comm), control_));
}

DPTK_INLINE MpiTransport::Counts::Counts(const Buffer& each)
    : all(detail::mpi_count(each)), count(static_cast<int>(all)), type(detail::mpi_datatype(each.dtype)) {}

DPTK_INLINE bool MpiTransport::Counts::fit(int parts) const noexcept {
    return all <= largest_count / static_cast<std::size_t>(parts);
}

DPTK_INLINE MpiTransport::MpiTransport(const MpiTransport& other, detail::OwnedMpiComm comm)
    : comm_(std::move(comm)),
      control_(other.control_),
      rank_(other.rank_),
      size_(other.size_),
      local_rank_(other.local_rank_),
      local_size_(other.local_size_) {}

DPTK_INLINE MpiTransport::MpiTransport(detail::OwnedMpiComm comm, MpiOptions options)
    : comm_(std::move(comm)), control_(detail::MpiControl(comm_.get(), std::move(options)).make()) {
    find_ranks();
}

DPTK_INLINE MpiTransport::MpiTransport(detail::OwnedMpiComm comm,
                                       std::shared_ptr<detail::ControlPlane> control)
    : comm_(std::move(comm)), control_(std::move(control)) {
    find_ranks();
}

DPTK_INLINE void MpiTransport::find_ranks() {
    check_mpi(MPI_Comm_rank(comm_.get(), &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(comm_.get(), &size_), "MPI_Comm_size");
    MPI_Comm host = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split_type(comm_.get(), MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host),
              "MPI_Comm_split_type");
    MPI_Comm_rank(host, &local_rank_);
    MPI_Comm_size(host, &local_size_);
    MPI_Comm_free(&host);
}

DPTK_INLINE detail::OwnedMpiComm MpiTransport::duplicate_of(MPI_Comm comm) {
    static_cast<void>(MpiEnvironment::get());
    MPI_Comm copy = MPI_COMM_NULL;
    check_mpi(MPI_Comm_dup(comm, &copy), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
    return detail::OwnedMpiComm(copy);
}

DPTK_INLINE Buffer MpiTransport::part(const Buffer& of, int rank, std::size_t count) {
    return of.slice(static_cast<std::size_t>(rank) * count, count);
}

DPTK_INLINE void MpiTransport::broadcast_parts(const Buffer& output, std::span<const std::size_t> counts) {
    const algorithms::Slices parts(output, counts);
    for (int root = 0; root < size_; ++root) broadcast(parts[root], root);
}

DPTK_INLINE int MpiTransport::receive(const Buffer& buffer, int from, int tag) {
    const detail::MpiMessageType message(buffer);
    MPI_Status status;
    check_received(MPI_Recv(buffer.data, message.count(), message.type(), from, tag, comm_.get(), &status),
                   status, buffer, from, "MPI_Recv");
    return status.MPI_SOURCE;
}

DPTK_INLINE void MpiTransport::check_received(int result, const MPI_Status& status, const Buffer& buffer,
                                              int from, std::string_view call) const {
    int error_class = MPI_SUCCESS;
    if (result != MPI_SUCCESS) MPI_Error_class(result, &error_class);
    if (error_class == MPI_ERR_TRUNCATE) {
        const int sender = from < 0 ? status.MPI_SOURCE : from;
        throw MismatchError(detail::too_long_text(sender, rank_, buffer.bytes()),
                            {.rank = rank_, .peer = sender});
    }
    check_mpi(result, call);
    check_size(status, buffer, rank_);
}

DPTK_INLINE void MpiTransport::check_size(const MPI_Status& status, const Buffer& buffer, int rank) {
    MPI_Count received = 0;
    check_mpi(MPI_Get_elements_x(&status, detail::mpi_datatype(buffer.dtype), &received),
              "MPI_Get_elements_x");
    const auto count = static_cast<std::size_t>(received);
    if (received != MPI_UNDEFINED && count == detail::mpi_count(buffer)) return;
    const std::size_t bytes = buffer.dtype == DType::opaque ? 1 : buffer.element_size();
    const std::string sent =
        received == MPI_UNDEFINED ? "incomplete elements" : detail::text(count * bytes, " bytes");
    throw detail::wrong_size(status.MPI_SOURCE, sent, rank, buffer.bytes());
}

}  // namespace DPTK_NAMESPACE
