// Test double for NCCL: checks the rules of its documentation, and carries out the collectives and
// messages.
#include <nccl.h>

#include <dptk/core/float16.hpp>

#include <algorithm>
#include <cstring>
#include <optional>
#include <tuple>
#include <utility>

#include "cuda_double/state.hpp"

namespace cuda_double {

namespace {

/// How often a communicator reports ncclInProgress before it accepts a call.
constexpr int polls_in_progress = 3;

enum class Kind { all_reduce, reduce, broadcast, all_gather, reduce_scatter, send, recv };

struct Op {
    Kind kind;
    const void* from;
    void* to;
    std::size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    std::optional<double> weight;
    int root_or_peer;
    cudaStream_t stream;
};

struct Comm;

/// A collective that is waiting for ranks.
struct PendingCollective {
    std::map<int, Op> parts;
    bool done = false;
    bool broken = false;  // a rank was aborted, and its memory may be freed
    int left = 0;
};

/// A message from one rank to another.
struct SentMessage {
    const Op* op = nullptr;
    int device = 0;
    bool taken = false;
};

struct World {
    std::mutex mutex;
    std::condition_variable changed;
    int size = 0;
    std::map<int, std::shared_ptr<Comm>> members;
    bool has_duplicates = false;
    int finalized = 0;
    std::map<std::uint64_t, PendingCollective> collectives;
    std::map<std::tuple<int, int, std::uint64_t>, SentMessage> messages;
};

struct Comm {
    std::shared_ptr<World> world;
    int rank = 0;
    int device = 0;
    bool blocking = false;
    /// NCCL's own thread writes the handle to `slot` when it has connected, or has failed to connect.
    ncclComm_t handle = nullptr;
    ncclComm_t* slot = nullptr;
    /// How many communicators that were connected in the same group are being aborted.
    std::shared_ptr<std::atomic<int>> group_aborts;
    std::atomic<int> inside = 0;
    std::atomic<bool> aborted = false;
    std::atomic<ncclResult_t> error = ncclSuccess;

    std::mutex mutex;
    std::condition_variable changed;
    /// The call that was made and not yet accepted.
    enum class Pending { nothing, connecting, launching, finalizing } pending = Pending::nothing;
    int polls = 0;
    std::vector<Op> launch;
    std::vector<Stream*> streams;
    int is_unwinding = 0;
    bool finalized = false;
    std::uint64_t next_collective = 0;
    std::map<int, std::uint64_t> next_sent;
    std::map<int, std::uint64_t> next_received;
    std::map<int, std::pair<ncclDataType_t, double>> weighted_ops;
    int next_op = ncclNumOps;
    std::set<const void*> registered;
};

std::map<std::string, std::weak_ptr<World>>& worlds() {
    static auto& all = *new std::map<std::string, std::weak_ptr<World>>;
    return all;
}

std::size_t size_of(ncclDataType_t type) {
    switch (type) {
        case ncclInt8:
        case ncclUint8: return 1;
        case ncclFloat16:
        case ncclBfloat16: return 2;
        case ncclInt32:
        case ncclUint32:
        case ncclFloat32: return 4;
        default: return 8;
    }
}

template <class T, class Wide = T>
void combine_as(std::byte* into, const std::byte* from, std::size_t count, ncclRedOp_t op) {
    for (std::size_t i = 0; i < count; ++i) {
        T a;
        T b;
        std::memcpy(&a, into + i * sizeof(T), sizeof(T));
        std::memcpy(&b, from + i * sizeof(T), sizeof(T));
        const auto x = static_cast<Wide>(a);
        const auto y = static_cast<Wide>(b);
        Wide result = static_cast<Wide>(x + y);
        if (op == ncclProd) result = static_cast<Wide>(x * y);
        if (op == ncclMin) result = y < x ? y : x;
        if (op == ncclMax) result = x < y ? y : x;
        const T out = static_cast<T>(result);
        std::memcpy(into + i * sizeof(T), &out, sizeof(T));
    }
}

void combine(std::byte* into, const std::byte* from, std::size_t count, ncclDataType_t type, ncclRedOp_t op) {
    switch (type) {
        case ncclInt8: return combine_as<std::int8_t, int>(into, from, count, op);
        case ncclUint8: return combine_as<std::uint8_t, unsigned>(into, from, count, op);
        case ncclInt32: return combine_as<std::int32_t, std::int64_t>(into, from, count, op);
        case ncclUint32: return combine_as<std::uint32_t>(into, from, count, op);
        case ncclInt64: return combine_as<std::int64_t>(into, from, count, op);
        case ncclUint64: return combine_as<std::uint64_t>(into, from, count, op);
        case ncclFloat16: return combine_as<dptk::float16, float>(into, from, count, op);
        case ncclBfloat16: return combine_as<dptk::bfloat16, float>(into, from, count, op);
        case ncclFloat32: return combine_as<float>(into, from, count, op);
        case ncclFloat64: return combine_as<double>(into, from, count, op);
        default: problem("a reduction of a type that the stand-in does not know");
    }
}

/// Scales in the elements' own type, as NCCL does for averages and weights.
template <class T, class Wide = T>
void scale_as(std::byte* data, std::size_t count, double factor) {
    for (std::size_t i = 0; i < count; ++i) {
        T value;
        std::memcpy(&value, data + i * sizeof(T), sizeof(T));
        value = static_cast<T>(static_cast<Wide>(static_cast<Wide>(value) * static_cast<Wide>(factor)));
        std::memcpy(data + i * sizeof(T), &value, sizeof(T));
    }
}

void scale(std::byte* data, std::size_t count, ncclDataType_t type, double factor) {
    if (type == ncclFloat16) return scale_as<dptk::float16, float>(data, count, factor);
    if (type == ncclBfloat16) return scale_as<dptk::bfloat16, float>(data, count, factor);
    if (type == ncclFloat32) return scale_as<float>(data, count, factor);
    if (type == ncclFloat64) return scale_as<double>(data, count, factor);
    problem("an average of integers");
}

/// The bytes that NCCL's kernel for one rank writes for an average or a weighted sum: equal parts for its
/// blocks, in packs of 16 bytes, without the remainder.
std::size_t bytes_of_one_rank(const Op& op) {
    const std::size_t bytes = op.count * size_of(op.type);
    const std::size_t blocks = std::clamp<std::size_t>((bytes + 16383) / 16384, 1, 32);
    const std::size_t pack = 16 / size_of(op.type);
    const std::size_t part = (op.count / blocks + pack - 1) / pack * pack;
    return std::min(op.count, blocks * part) * size_of(op.type);
}

/// Carries out the collective for all ranks. Called by the last rank that enters it.
void carry_out(World& world, PendingCollective& collective) {
    const Op& first = collective.parts.begin()->second;
    const std::size_t bytes = first.count * size_of(first.type);
    const auto ranks = static_cast<std::size_t>(world.size);
    const auto device = [&](int rank) { return world.members.at(rank)->device; };
    for (const auto& [rank, op] : collective.parts) {
        const bool weighted = op.weight.has_value() && first.weight.has_value();
        if (op.kind != first.kind || op.count != first.count || op.type != first.type ||
            (op.op != first.op && !weighted) || op.root_or_peer != first.root_or_peer)
            problem("ranks make different calls");
    }
    const auto read = [&](int rank, std::size_t offset, std::size_t length) {
        const Op& op = collective.parts.at(rank);
        const auto* begin = static_cast<const std::byte*>(op.from) + offset;
        const std::byte* data = translate(begin, length, device(rank), "a collective's input");
        return length == 0 ? std::vector<std::byte>() : std::vector<std::byte>(data, data + length);
    };
    std::vector<std::pair<std::byte*, std::vector<std::byte>>> results;
    const auto write = [&](int rank, std::size_t offset, std::vector<std::byte> data) {
        auto* begin = static_cast<std::byte*>(collective.parts.at(rank).to) + offset;
        std::byte* to = translate(begin, data.size(), device(rank), "a collective's output");
        results.emplace_back(to, std::move(data));
    };
    const auto reduced = [&](std::size_t offset) {
        std::vector<std::byte> sum;
        for (int rank = 0; rank < world.size; ++rank) {
            const Op& op = collective.parts.at(rank);
            std::vector<std::byte> part = read(rank, offset, bytes);
            if (op.op == ncclAvg) scale(part.data(), op.count, op.type, 1.0 / static_cast<double>(ranks));
            if (op.weight) scale(part.data(), op.count, op.type, *op.weight);
            if (rank == 0) {
                sum = std::move(part);
            } else {
                combine(sum.data(), part.data(), op.count, op.type, op.op);
            }
        }
        if (world.size == 1 && (first.op == ncclAvg || first.weight)) sum.resize(bytes_of_one_rank(first));
        return sum;
    };
    for (int rank = 0; rank < world.size; ++rank) {
        const auto place = static_cast<std::size_t>(rank) * bytes;
        switch (first.kind) {
            case Kind::all_reduce: write(rank, 0, reduced(0)); break;
            case Kind::reduce:
                if (rank == first.root_or_peer) write(rank, 0, reduced(0));
                break;
            case Kind::broadcast: write(rank, 0, read(first.root_or_peer, 0, bytes)); break;
            case Kind::reduce_scatter: write(rank, 0, reduced(place)); break;
            case Kind::all_gather:
                for (int other = 0; other < world.size; ++other)
                    write(rank, static_cast<std::size_t>(other) * bytes, read(other, 0, bytes));
                break;
            case Kind::send:
            case Kind::recv: break;
        }
    }
    for (auto& [to, data] : results) {
        if (!data.empty()) std::memcpy(to, data.data(), data.size());
    }
}

void run_collective(const std::shared_ptr<Comm>& comm, std::uint64_t number, const Op& op) {
    World& world = *comm->world;
    std::unique_lock lock(world.mutex);
    PendingCollective& collective = world.collectives[number];
    collective.parts.emplace(comm->rank, op);
    if (static_cast<int>(collective.parts.size()) == world.size && !collective.broken) {
        carry_out(world, collective);
        collective.done = true;
        world.changed.notify_all();
    }
    world.changed.wait(lock, [&] { return collective.done || comm->aborted; });
    collective.broken = !collective.done;
    if (++collective.left == world.size) world.collectives.erase(number);
}

/// A send or receive of a group, with its number among the messages of the two ranks.
struct Numbered {
    Op op;
    std::uint64_t number;
};

/// Carries out all sends and receives of one group concurrently.
void exchange(const std::shared_ptr<Comm>& comm, const std::vector<Numbered>& messages) {
    World& world = *comm->world;
    std::unique_lock lock(world.mutex);
    const auto key = [&](const Numbered& message) {
        const int peer = message.op.root_or_peer;
        return message.op.kind == Kind::send ? std::tuple(comm->rank, peer, message.number)
                                             : std::tuple(peer, comm->rank, message.number);
    };
    for (const Numbered& message : messages) {
        if (message.op.kind == Kind::send) world.messages[key(message)] = {&message.op, comm->device, false};
    }
    world.changed.notify_all();
    for (const Numbered& message : messages) {
        if (message.op.kind != Kind::recv) continue;
        const auto has_arrived = [&] {
            const auto found = world.messages.find(key(message));
            return found != world.messages.end() && found->second.op != nullptr && !found->second.taken;
        };
        world.changed.wait(lock, [&] { return has_arrived() || comm->aborted; });
        if (comm->aborted) break;
        SentMessage& sent = world.messages[key(message)];
        const std::size_t bytes = message.op.count * size_of(message.op.type);
        if (sent.op->count * size_of(sent.op->type) != bytes)
            problem("a message and its receiver differ in size");
        const std::byte* from = translate(sent.op->from, bytes, sent.device, "ncclSend");
        std::byte* to = translate(message.op.to, bytes, comm->device, "ncclRecv");
        if (bytes > 0) std::memcpy(to, from, bytes);
        sent.taken = true;
        world.changed.notify_all();
    }
    for (const Numbered& message : messages) {
        if (message.op.kind != Kind::send) continue;
        world.changed.wait(lock, [&] { return world.messages[key(message)].taken || comm->aborted; });
        world.messages.erase(key(message));
    }
}

/// Carries out the calls of one launch on the stream's thread.
void perform(const std::shared_ptr<Comm>& comm, const std::vector<std::pair<std::uint64_t, Op>>& collectives,
             const std::vector<Numbered>& messages) {
    if (const int fault = background_fault(comm->device)) {
        comm->error = static_cast<ncclResult_t>(fault);
        std::unique_lock lock(comm->world->mutex);
        comm->world->changed.wait(lock, [&] { return comm->aborted.load(); });
    }
    if (!comm->aborted) {
        for (const auto& [number, op] : collectives) run_collective(comm, number, op);
        if (!messages.empty()) exchange(comm, messages);
    }
    const std::lock_guard lock(comm->mutex);
    --comm->is_unwinding;
    comm->changed.notify_all();
}

/// The calls of one group, with their numbers.
struct Calls {
    std::vector<std::pair<std::uint64_t, Op>> collectives;
    std::vector<Numbered> messages;
};

/// Numbers the calls. Requires the communicator's lock.
Calls number(Comm& comm, const std::vector<Op>& ops) {
    ++comm.is_unwinding;
    Calls calls;
    for (const Op& op : ops) {
        if (op.kind == Kind::send) {
            calls.messages.push_back({op, comm.next_sent[op.root_or_peer]++});
        } else if (op.kind == Kind::recv) {
            calls.messages.push_back({op, comm.next_received[op.root_or_peer]++});
        } else {
            calls.collectives.emplace_back(comm.next_collective++, op);
        }
    }
    return calls;
}

/// Enqueues the calls on their stream. In a graph, each launch makes new calls. Requires the communicator's
/// lock.
void hand_over(const std::shared_ptr<Comm>& comm) {
    for (Stream* stream : comm->streams) --stream->launching;
    comm->streams.clear();
    if (comm->launch.empty()) return;
    const std::vector<Op> ops = std::exchange(comm->launch, {});
    for (const Op& op : ops)
        if (op.stream != ops.front().stream) problem("calls of one group on several streams");
    Stream& stream = stream_of(ops.front().stream, comm->device);
    const auto work = [comm](const Calls& calls) {
        return [comm, calls] { perform(comm, calls.collectives, calls.messages); };
    };
    if (!stream.capture()) return stream.add(work(number(*comm, ops)));
    stream.add_made([comm, ops, work]() -> std::function<void()> {
        const std::lock_guard lock(comm->mutex);
        return work(number(*comm, ops));
    });
}

}  // namespace

}  // namespace cuda_double

struct ncclComm {
    std::shared_ptr<cuda_double::Comm> comm;
};

namespace {

using cuda_double::Comm;
using cuda_double::Kind;
using cuda_double::on_call;
using cuda_double::Op;
using cuda_double::problem;
using cuda_double::state;

struct Group {
    int depth = 0;
    std::shared_ptr<std::atomic<int>>
        aborts;  // counts aborts of communicators that are connected in the group
    std::vector<std::pair<ncclComm_t, Op>> calls;
    ~Group() {
        if (depth != 0) problem("a thread ended inside a group");
    }
};

Group& group() {
    thread_local Group its;
    return its;
}

bool is_alive(ncclComm_t comm, const char* function) {
    const std::lock_guard lock(state().mutex);
    if (state().comms.contains(comm)) return true;
    state().problems.push_back(std::string(function) + " on a communicator that does not exist");
    return false;
}

/// Marks that a thread is inside NCCL.
class Inside {
  public:
    Inside(Comm& comm, const char* function) : comm_(comm) {
        if (++comm_.inside > 1) problem(std::string(function) + " while another thread is inside NCCL");
    }
    ~Inside() { --comm_.inside; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

  private:
    Comm& comm_;
};

ncclResult_t begin_pending(const std::shared_ptr<Comm>& comm, Comm::Pending what, const char* function) {
    if (comm->pending != Comm::Pending::nothing)
        problem(std::string(function) + " before the previous call was accepted");
    comm->pending = what;
    comm->polls = cuda_double::polls_in_progress;
    return ncclInProgress;
}

ncclResult_t launch(const char* function, ncclComm_t handle, std::vector<Op> ops) {
    const std::shared_ptr<Comm> comm = handle->comm;
    const std::lock_guard lock(comm->mutex);
    if (comm->error != ncclSuccess) return comm->error;
    const bool early = comm->pending != Comm::Pending::nothing;
    const ncclResult_t result = begin_pending(comm, Comm::Pending::launching, function);
    for (const Op& op : ops) {
        cuda_double::Stream& stream = cuda_double::stream_of(op.stream, comm->device);
        if (stream.device() != comm->device) problem(std::string(function) + " on another device's stream");
        if (!early) comm->streams.push_back(&stream);
        if (!early) ++stream.launching;
    }
    comm->launch = std::move(ops);
    if (!comm->blocking) return result;
    comm->pending = Comm::Pending::nothing;
    cuda_double::hand_over(comm);
    return ncclSuccess;
}

ncclResult_t call(const char* function, ncclComm_t handle, const Op& op) {
    if (!is_alive(handle, function)) return ncclInvalidArgument;
    const Inside inside(*handle->comm, function);
    if (const int injected = on_call(function, handle->comm->device))
        return static_cast<ncclResult_t>(injected);
    if (group().depth == 0) return launch(function, handle, {op});
    group().calls.emplace_back(handle, op);
    return handle->comm->blocking ? ncclSuccess : ncclInProgress;
}

std::optional<double> weight_of(ncclComm_t handle, ncclRedOp_t op) {
    if (op < ncclNumOps) return std::nullopt;
    const std::lock_guard lock(handle->comm->mutex);
    const auto found = handle->comm->weighted_ops.find(op);
    if (found != handle->comm->weighted_ops.end()) return found->second.second;
    problem("an operation that does not exist");
    return std::nullopt;
}

void forget(ncclComm_t handle) {
    {
        const std::lock_guard lock(state().mutex);
        state().comms.erase(handle);
        for (const void* data : handle->comm->registered) state().registered.erase(data);
    }
    delete handle;
}

void join(const std::shared_ptr<Comm>& comm, int size, const ncclUniqueId& id) {
    std::shared_ptr<cuda_double::World> world;
    {
        const std::lock_guard lock(state().mutex);
        auto& known = cuda_double::worlds()[std::string(id.internal, sizeof id.internal)];
        world = known.lock();
        if (!world) known = world = std::make_shared<cuda_double::World>();
    }
    const std::lock_guard lock(world->mutex);
    world->size = size;
    comm->world = world;
    const auto gpu = [](int device) {
        const std::lock_guard locked(state().mutex);
        const auto same = state().same_gpu.find(device);
        return same == state().same_gpu.end() ? device : same->second;
    };
    for (const auto& [rank, other] : world->members)
        world->has_duplicates = world->has_duplicates || gpu(other->device) == gpu(comm->device);
    if (!world->members.emplace(comm->rank, comm).second) problem("two communicators of one rank");
    world->changed.notify_all();
}

bool all_have_come(Comm& comm) {
    const std::lock_guard lock(comm.world->mutex);
    return static_cast<int>(comm.world->members.size()) == comm.world->size;
}

bool all_have_finalized(Comm& comm) {
    const std::lock_guard lock(comm.world->mutex);
    return comm.world->finalized == comm.world->size;
}

/// Progresses the pending call. Requires the communicator's lock.
ncclResult_t poll(const std::shared_ptr<Comm>& comm) {
    if (comm->error != ncclSuccess) return comm->error;
    if (comm->pending == Comm::Pending::nothing) return ncclSuccess;
    if (comm->polls > 0 && --comm->polls > 0) return ncclInProgress;
    if (comm->pending == Comm::Pending::connecting) {
        if (!all_have_come(*comm)) return ncclInProgress;
        if (comm->world->has_duplicates) return comm->error = ncclInvalidUsage;
    }
    if (comm->pending == Comm::Pending::finalizing) {
        if (comm->is_unwinding > 0 || !all_have_finalized(*comm)) return ncclInProgress;
        comm->finalized = true;
    }
    if (comm->pending == Comm::Pending::connecting) *comm->slot = comm->handle;
    const bool launching = comm->pending == Comm::Pending::launching;
    comm->pending = Comm::Pending::nothing;
    if (launching) cuda_double::hand_over(comm);
    return ncclSuccess;
}

}  // namespace

#define DOUBLE_CALL(device) \
    if (const int injected = on_call(__func__, device)) return static_cast<ncclResult_t>(injected)
#define DOUBLE_COMM_CALL(handle_)                                 \
    if (!is_alive(handle_, __func__)) return ncclInvalidArgument; \
    const Inside inside_of_nccl(*(handle_)->comm, __func__);      \
    DOUBLE_CALL((handle_)->comm->device)

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
    switch (result) {
        case ncclSuccess: return "no error";
        case ncclUnhandledCudaError: return "unhandled cuda error";
        case ncclSystemError: return "unhandled system error";
        case ncclInternalError: return "internal error";
        case ncclInvalidArgument: return "invalid argument";
        case ncclInvalidUsage: return "invalid usage";
        case ncclRemoteError: return "remote process exited or there was a network error";
        case ncclInProgress: return "NCCL operation in progress";
        default: return "unknown result code";
    }
}

const char* ncclGetLastError(ncclComm_t) {
    return "last error of the test double\n";
}

ncclResult_t ncclGetVersion(int* version) {
    DOUBLE_CALL(cuda_double::current_device());
    const std::lock_guard lock(state().mutex);
    *version = state().nccl_version == 0 ? NCCL_VERSION_CODE : state().nccl_version;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    DOUBLE_CALL(cuda_double::current_device());
    static std::atomic<int> made = 0;
    *id = {};
    std::snprintf(id->internal, sizeof id->internal, "unique id %d", ++made);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
    const int device = cuda_double::current_device();
    DOUBLE_CALL(device);
    auto* made = new ncclComm{std::make_shared<Comm>()};
    made->comm->rank = rank;
    made->comm->device = device;
    made->comm->blocking = config == nullptr || config->blocking != 0;
    {
        const std::lock_guard lock(state().mutex);
        state().comms.insert(made);
    }
    *handle = made;
    made->comm->handle = made;
    made->comm->slot = handle;
    made->comm->group_aborts = group().aborts;
    join(made->comm, size, id);
    const std::lock_guard lock(made->comm->mutex);
    const ncclResult_t result = begin_pending(made->comm, Comm::Pending::connecting, __func__);
    if (!made->comm->blocking) return result;
    while (poll(made->comm) == ncclInProgress) std::this_thread::yield();
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* handle, int size, ncclUniqueId id, int rank) {
    return ncclCommInitRankConfig(handle, size, id, rank, nullptr);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
    DOUBLE_COMM_CALL(handle);
    const std::lock_guard lock(handle->comm->mutex);
    *error = poll(handle->comm);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
    DOUBLE_COMM_CALL(handle);
    const std::lock_guard lock(handle->comm->mutex);
    if (!handle->comm->registered.empty()) problem("a communicator was closed with registered memory");
    const ncclResult_t result = begin_pending(handle->comm, Comm::Pending::finalizing, __func__);
    const std::lock_guard in_world(handle->comm->world->mutex);
    ++handle->comm->world->finalized;
    return result;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
    if (!is_alive(handle, __func__)) return ncclInvalidArgument;
    ncclResult_t injected = ncclSuccess;
    {
        const Inside inside(*handle->comm, __func__);
        injected = static_cast<ncclResult_t>(on_call(__func__, handle->comm->device));
        if (!handle->comm->finalized && !handle->comm->blocking)
            problem("a communicator was destroyed that had not been finalized");
    }
    forget(handle);
    return injected;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
    if (!is_alive(handle, __func__)) return ncclInvalidArgument;
    const std::shared_ptr<Comm> comm = handle->comm;
    ncclResult_t injected = ncclSuccess;
    {
        const Inside inside(*comm, __func__);
        if (comm->group_aborts && ++*comm->group_aborts > 1)
            problem("communicators that were connected in one group are aborted concurrently");
        {
            const std::lock_guard lock(comm->mutex);
            if (comm->pending == Comm::Pending::connecting) *comm->slot = handle;
            for (cuda_double::Stream* stream : std::exchange(comm->streams, {})) --stream->launching;
            comm->launch.clear();
        }
        injected = static_cast<ncclResult_t>(on_call(__func__, comm->device));
        comm->aborted = true;
        if (comm->world) {
            const std::lock_guard lock(comm->world->mutex);
            comm->world->changed.notify_all();
        }
        std::unique_lock lock(comm->mutex);
        comm->changed.wait(lock, [&] { return comm->is_unwinding == 0; });
        if (comm->group_aborts) --*comm->group_aborts;
    }
    forget(handle);
    return injected;
}

ncclResult_t ncclCommUserRank(const ncclComm_t handle, int* rank) {
    DOUBLE_COMM_CALL(handle);
    *rank = handle->comm->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t handle, int* count) {
    DOUBLE_COMM_CALL(handle);
    *count = handle->comm->world->size;
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t handle, int* device) {
    DOUBLE_COMM_CALL(handle);
    *device = handle->comm->device;
    return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** data, std::size_t bytes) {
    DOUBLE_CALL(cuda_double::current_device());
    *data = cuda_double::allocate(bytes, cuda_double::current_device(), cuda_double::MemoryKind::nccl);
    return ncclSuccess;
}

ncclResult_t ncclMemFree(void* data) {
    const auto injected = static_cast<ncclResult_t>(on_call(__func__, cuda_double::current_device()));
    return cuda_double::release_memory(data, "ncclMemFree") ? injected : ncclInvalidArgument;
}

ncclResult_t ncclCommRegister(const ncclComm_t handle, void* data, std::size_t, void** registration) {
    DOUBLE_COMM_CALL(handle);
    const std::lock_guard lock(state().mutex);
    const auto found = state().memory.find(reinterpret_cast<std::uintptr_t>(data));
    if (found == state().memory.end() || found->second.kind != cuda_double::MemoryKind::nccl)
        state().problems.push_back("memory was registered that is not NCCL's");
    state().registered.insert(data);
    handle->comm->registered.insert(data);
    *registration = data;
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t handle, void* registration) {
    DOUBLE_COMM_CALL(handle);
    const std::lock_guard lock(state().mutex);
    state().registered.erase(registration);
    handle->comm->registered.erase(registration);
    return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t, ncclComm_t handle) {
    DOUBLE_COMM_CALL(handle);
    const std::lock_guard lock(handle->comm->mutex);
    double weight = 0;
    if (type == ncclFloat64) {
        std::memcpy(&weight, scalar, sizeof weight);
    } else if (type == ncclFloat32) {
        float narrow = 0;
        std::memcpy(&narrow, scalar, sizeof narrow);
        weight = static_cast<double>(narrow);
    } else {
        problem("a weight that loses its digits");
    }
    const int number = handle->comm->next_op++;
    handle->comm->weighted_ops[number] = {type, weight};
    *op = static_cast<ncclRedOp_t>(number);
    return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t handle) {
    DOUBLE_COMM_CALL(handle);
    const std::lock_guard lock(handle->comm->mutex);
    if (handle->comm->weighted_ops.erase(op) == 0) problem("an operation that does not exist was destroyed");
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
    return call(__func__, comm,
                {Kind::all_reduce, from, to, count, type, op, weight_of(comm, op), 0, stream});
}

ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
    return call(__func__, comm, {Kind::reduce, from, to, count, type, op, weight_of(comm, op), root, stream});
}

ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
    return call(__func__, comm, {Kind::broadcast, from, to, count, type, ncclSum, {}, root, stream});
}

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    return call(__func__, comm, {Kind::all_gather, from, to, count, type, ncclSum, {}, 0, stream});
}

ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return call(__func__, comm,
                {Kind::reduce_scatter, from, to, count, type, op, weight_of(comm, op), 0, stream});
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return call(__func__, comm, {Kind::send, from, nullptr, count, type, ncclSum, {}, peer, stream});
}

ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return call(__func__, comm, {Kind::recv, nullptr, to, count, type, ncclSum, {}, peer, stream});
}

ncclResult_t ncclGroupStart() {
    DOUBLE_CALL(cuda_double::current_device());
    if (++group().depth == 1) group().aborts = std::make_shared<std::atomic<int>>(0);
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
    if (group().depth == 0) {
        problem("a group was ended that had not begun");
        return ncclInvalidUsage;
    }
    --group().depth;
    if (group().depth > 0) return ncclSuccess;
    group().aborts = nullptr;
    const std::vector<std::pair<ncclComm_t, Op>> calls = std::exchange(group().calls, {});
    DOUBLE_CALL(cuda_double::current_device());
    std::map<ncclComm_t, std::vector<Op>> of_comm;
    for (const auto& [comm, op] : calls) of_comm[comm].push_back(op);
    ncclResult_t result = ncclSuccess;
    for (const auto& [comm, ops] : of_comm) {
        if (!is_alive(comm, __func__)) return ncclInvalidArgument;
        const Inside inside(*comm->comm, __func__);
        result = launch(__func__, comm, ops);
    }
    return result;
}
}
