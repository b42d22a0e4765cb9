#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "cuda_double/state.hpp"

/// Holds a shared pointer, so that enqueued work may outlive the handle.
struct CUstream_st {
    std::shared_ptr<cuda_double::Stream> stream;
};

struct CUevent_st {
    struct Progress {
        std::mutex mutex;
        std::condition_variable changed;
        std::uint64_t recorded = 0;
        std::uint64_t reached = 0;
    };
    std::shared_ptr<Progress> progress = std::make_shared<Progress>();
    int device = 0;
    /// The capture in which the event was recorded last; null if that was not in a capture.
    std::shared_ptr<cuda_double::Capture> capture;
    cuda_double::Capture::Past past;
};

struct CUgraph_st {
    std::vector<cuda_double::Capture::Task> tasks;
};

struct CUgraphExec_st {
    std::vector<cuda_double::Capture::Task> tasks;
    int device = 0;
};

struct CUmemPoolHandle_st {
    int device = 0;
    bool is_open = false;  // whether other devices have access
};

namespace cuda_double {

namespace {

constexpr std::size_t page = 4096;

std::string number(std::size_t value) {
    return std::to_string(value);
}

/// Delays streams at pseudorandom moments.
void be_late() {
    static std::atomic<std::uint32_t> draws = 0;
    if (draws++ * 2654435761U >> 28 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

thread_local int device_of_thread = 0;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

/// Returns the allocation that contains the address. Requires the lock.
std::map<std::uintptr_t, Allocation>::iterator find_memory(const void* data) {
    State& all = state();
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    auto after = all.memory.upper_bound(address);
    if (after == all.memory.begin()) return all.memory.end();
    --after;
    return address < after->first + std::max<std::size_t>(after->second.bytes, 1) ? after : all.memory.end();
}

std::size_t pages(std::size_t bytes) {
    return (std::max<std::size_t>(bytes, 1) + page - 1) / page * page;
}

}  // namespace

State& state() {
    static State& all = *new State;
    return all;
}

Stream::Stream(int device) : device_(device), thread_([this] { serve(); }) {}

void Stream::add(std::function<void()> task) {
    if (launching > 0) problem("work was put on a stream before NCCL had accepted its last call there");
    {
        const std::lock_guard lock(mutex_);
        if (capture_) return capture_->add(this, [task = std::move(task)] { return task; });
        tasks_.push_back(std::move(task));
    }
    changed_.notify_all();
}

void Stream::add_made(Capture::Task task) {
    if (const std::shared_ptr<Capture> into = capture()) return into->add(this, std::move(task));
    add(task());
}

std::shared_ptr<Capture> Stream::capture() {
    const std::lock_guard lock(mutex_);
    return capture_;
}

void Stream::set_capture(std::shared_ptr<Capture> capture) {
    const std::lock_guard lock(mutex_);
    capture_ = std::move(capture);
}

void refuse_while_captured(const char* function) {
    if (captures() == 0 || capture_mode != cudaStreamCaptureModeGlobal) return;
    const std::lock_guard lock(state().mutex);
    if (state().faults.empty())  // after a fault, a capture may be discarded
        state().problems.push_back(std::string(function) +
                                   " while a stream is captured, which breaks the capture");
}

void Stream::synchronize() {
    std::unique_lock lock(mutex_);
    if (capture_) {
        lock.unlock();
        return problem("a wait for a stream that is captured");
    }
    changed_.wait(lock, [&] { return tasks_.empty() && !busy_; });
}

void Stream::close() {
    {
        const std::lock_guard lock(mutex_);
        closing_ = true;
    }
    changed_.notify_all();
}

void Stream::join() {
    if (thread_.joinable()) thread_.join();
}

void Stream::serve() {
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [&] { return !tasks_.empty() || closing_; });
        if (tasks_.empty()) return;
        const std::function<void()> task = std::move(tasks_.front());
        tasks_.pop_front();
        busy_ = true;
        lock.unlock();
        be_late();
        task();
        lock.lock();
        busy_ = false;
        changed_.notify_all();
    }
}

void problem(const std::string& text) {
    const std::lock_guard lock(state().mutex);
    state().problems.push_back(text);
}

int on_call(const char* function, int device) {
    State& all = state();
    std::unique_lock lock(all.mutex);
    const int nth = ++all.counts[{function, device}];
    const auto faults = all.faults.find({function, device});
    if (faults == all.faults.end()) return 0;
    for (const Fault& fault : faults->second) {
        if (fault.nth != nth || fault.kind == Fault::Kind::background) continue;
        if (fault.kind == Fault::Kind::error) return fault.value;
        if (fault.kind == Fault::Kind::hang) {
            const std::uint64_t before = all.released;
            all.changed.wait(lock, [&] { return all.released != before; });
            return 0;
        }
        const int milliseconds = fault.value;
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
        return 0;
    }
    return 0;
}

int background_fault(int device) {
    State& all = state();
    const std::lock_guard lock(all.mutex);
    const Place place{"in the background", device};
    const int nth = ++all.counts[place];
    for (const Fault& fault : all.faults[place]) {
        if (fault.nth == nth) return fault.value;
    }
    return 0;
}

int current_device() {
    return device_of_thread;
}

Stream& stream_of(cudaStream_t handle, int device) {
    if (handle != nullptr) return *handle->stream;
    State& all = state();
    const std::lock_guard lock(all.mutex);
    auto& stream = all.default_streams[device];
    if (!stream) stream = std::make_shared<Stream>(device);
    return *stream;
}

std::byte* translate(const void* data, std::size_t bytes, int device, const char* who) {
    if (bytes == 0) return nullptr;
    State& all = state();
    const std::lock_guard lock(all.mutex);
    const auto found = find_memory(data);
    if (found == all.memory.end()) {
        if (device >= 0) all.problems.push_back(std::string(who) + ": host memory, or memory that was freed");
        return const_cast<std::byte*>(static_cast<const std::byte*>(data));
    }
    const std::size_t offset = reinterpret_cast<std::uintptr_t>(data) - found->first;
    if (offset + bytes > found->second.bytes)
        all.problems.push_back(std::string(who) + ": " + number(bytes) + " bytes at " + number(offset) +
                               " of " + number(found->second.bytes));
    if (device >= 0 && (found->second.device != device || found->second.kind == MemoryKind::pinned))
        all.problems.push_back(std::string(who) + ": memory of another device");
    return found->second.alias + offset;
}

/// Pages that the host cannot access at `place`, but can access at `alias`.
struct Pages {
    void* place;
    std::byte* alias;
};

Pages map_pages(std::size_t bytes) {
    const int file = memfd_create("device memory", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) std::abort();
    void* place = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, file, 0);
    void* alias = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (place == MAP_FAILED || alias == MAP_FAILED) std::abort();
    return {place, static_cast<std::byte*>(alias)};
}

/// Unused pages by size, kept because mapping is slow. Requires the state's lock.
std::map<std::size_t, std::vector<Pages>>& spare_pages() {
    static auto& spare = *new std::map<std::size_t, std::vector<Pages>>;
    return spare;
}

void* allocate(std::size_t bytes, int device, MemoryKind kind) {
    State& all = state();
    if (kind == MemoryKind::pinned) {
        void* memory = std::aligned_alloc(page, pages(bytes));
        const std::lock_guard lock(all.mutex);
        all.memory[reinterpret_cast<std::uintptr_t>(memory)] = {bytes, device, kind,
                                                                static_cast<std::byte*>(memory)};
        return memory;
    }
    const std::lock_guard lock(all.mutex);
    std::vector<Pages>& spare = spare_pages()[pages(bytes)];
    if (spare.empty()) spare.push_back(map_pages(pages(bytes)));
    const Pages memory = spare.back();
    spare.pop_back();
    std::memset(memory.alias, 0x5a, bytes);
    all.memory[reinterpret_cast<std::uintptr_t>(memory.place)] = {bytes, device, kind, memory.alias};
    return memory.place;
}

bool release_memory(void* data, const char* who) {
    State& all = state();
    const std::lock_guard lock(all.mutex);
    const auto found = all.memory.find(reinterpret_cast<std::uintptr_t>(data));
    if (found == all.memory.end()) {
        all.problems.push_back(std::string(who) + " of memory that is not allocated");
        return false;
    }
    if (all.registered.contains(data))
        all.problems.push_back(std::string(who) + " of memory that is registered");
    const Allocation memory = found->second;
    all.memory.erase(found);
    if (memory.kind == MemoryKind::pinned) {
        std::free(data);
    } else {
        spare_pages()[pages(memory.bytes)].push_back({data, memory.alias});
    }
    return true;
}

void wait_for_device(int device) {
    std::vector<Stream*> streams;
    std::vector<std::shared_ptr<Stream>> kept;
    {
        State& all = state();
        const std::lock_guard lock(all.mutex);
        for (Stream* stream : all.streams) {
            if (stream->device() == device) streams.push_back(stream);
        }
        for (const auto& stream : all.closed_streams) {
            if (stream->device() == device) kept.push_back(stream);
        }
        if (const auto found = all.default_streams.find(device); found != all.default_streams.end())
            kept.push_back(found->second);
    }
    for (Stream* stream : streams) stream->synchronize();
    for (const auto& stream : kept) stream->synchronize();
}

void finish() {
    release();
    State& all = state();
    std::vector<std::shared_ptr<Stream>> ending;
    {
        const std::lock_guard lock(all.mutex);
        for (auto& [device, stream] : all.default_streams) ending.push_back(stream);
        ending.insert(ending.end(), all.closed_streams.begin(), all.closed_streams.end());
        all.default_streams.clear();
        all.closed_streams.clear();
    }
    for (const auto& stream : ending) {
        stream->close();
        stream->join();
    }
}

void reset(int devices) {
    finish();
    State& all = state();
    const std::lock_guard lock(all.mutex);
    all.devices = devices;
    all.same_gpu.clear();
    all.nccl_version = 0;
    all.counts.clear();
    all.faults.clear();
    all.problems.clear();
    all.memory.clear();
    all.registered.clear();
    all.streams.clear();
    all.events.clear();
    all.pools.clear();
    all.graphs.clear();
    all.comms.clear();
    device_of_thread = 0;
}

std::vector<std::string> problems() {
    const std::lock_guard lock(state().mutex);
    return state().problems;
}

std::vector<std::string> leftovers() {
    State& all = state();
    const std::lock_guard lock(all.mutex);
    std::vector<std::string> found;
    const auto say = [&](std::size_t count, const char* what) {
        if (count > 0) found.push_back(number(count) + " " + what);
    };
    say(all.comms.size(), "communicators");
    say(all.streams.size(), "streams");
    say(all.events.size(), "events");
    say(all.pools.size(), "pools");
    say(all.graphs.size(), "graphs");
    say(all.registered.size(), "registrations");
    say(all.memory.size(), "pieces of memory");
    return found;
}

void forget_memory() {
    const std::lock_guard lock(state().mutex);
    state().memory.clear();
}

std::vector<Count> counts() {
    const std::lock_guard lock(state().mutex);
    std::vector<Count> found;
    for (const auto& [place, calls] : state().counts) found.push_back({place, calls});
    return found;
}

void fail(const Place& place, int nth, int error) {
    const std::lock_guard lock(state().mutex);
    state().faults[place].push_back({Fault::Kind::error, nth, error});
}

void hang(const Place& place, int nth) {
    const std::lock_guard lock(state().mutex);
    state().faults[place].push_back({Fault::Kind::hang, nth, 0});
}

void delay(const Place& place, int nth, int milliseconds) {
    const std::lock_guard lock(state().mutex);
    state().faults[place].push_back({Fault::Kind::delay, nth, milliseconds});
}

void fail_in_background(int device, int nth, int error) {
    const std::lock_guard lock(state().mutex);
    state().faults[{"in the background", device}].push_back({Fault::Kind::background, nth, error});
}

void release() {
    State& all = state();
    const std::lock_guard lock(all.mutex);
    ++all.released;
    all.faults.clear();
    all.changed.notify_all();
}

void put_on_one_gpu(int device, int other) {
    const std::lock_guard lock(state().mutex);
    state().same_gpu[other] = device;
}

void set_nccl_version(int version) {
    const std::lock_guard lock(state().mutex);
    state().nccl_version = version;
}

void* host_address(const void* device_memory) {
    return translate(device_memory, 1, -1, "host_address");
}

}  // namespace cuda_double

using cuda_double::on_call;
using cuda_double::state;

// Functions that release a resource release it even if they return an error.
#define DOUBLE_END(device) const auto injected = static_cast<cudaError_t>(on_call(__func__, device))
#define DOUBLE_CALL(device) \
    if (const int injected = on_call(__func__, device)) return static_cast<cudaError_t>(injected)

namespace {

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t failed(cudaError_t error) {
    last_error = error;
    return error;
}

}  // namespace

extern "C" {

const char* cudaGetErrorString(cudaError_t error) {
    return error == cudaErrorMemoryAllocation ? "out of memory" : "an error of the stand-in's";
}

const char* cudaGetErrorName(cudaError_t error) {
    return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorUnknown";
}

cudaError_t cudaGetLastError() {
    return std::exchange(last_error, cudaSuccess);
}

cudaError_t cudaGetDeviceCount(int* count) {
    DOUBLE_CALL(cuda_double::current_device());
    const std::lock_guard lock(state().mutex);
    *count = state().devices;
    return state().devices > 0 ? cudaSuccess : failed(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int* device) {
    DOUBLE_CALL(cuda_double::current_device());
    *device = cuda_double::current_device();
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    DOUBLE_CALL(device);
    {
        const std::lock_guard lock(state().mutex);
        if (device < 0 || device >= state().devices) return failed(cudaErrorInvalidDevice);
    }
    cuda_double::device_of_thread = device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int device) {
    DOUBLE_CALL(device);
    const std::lock_guard lock(state().mutex);
    const auto same = state().same_gpu.find(device);
    std::snprintf(id, static_cast<std::size_t>(size), "0000:%02x:00.0",
                  static_cast<unsigned>((same == state().same_gpu.end() ? device : same->second) + 1));
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
    DOUBLE_CALL(cuda_double::current_device());
    const std::lock_guard lock(state().mutex);
    *attributes = {};
    const auto found = cuda_double::find_memory(data);
    if (found == state().memory.end()) {
        attributes->type = cudaMemoryTypeUnregistered;
        return cudaSuccess;
    }
    const bool pinned = found->second.kind == cuda_double::MemoryKind::pinned;
    attributes->type = pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    attributes->device = found->second.device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
    DOUBLE_CALL(cuda_double::current_device());
    *lowest = 0;
    *highest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
    const int device = cuda_double::current_device();
    DOUBLE_CALL(device);
    if (flags != cudaStreamNonBlocking) cuda_double::problem("a stream that waits for the default stream");
    auto* made = new CUstream_st{std::make_shared<cuda_double::Stream>(device)};
    const std::lock_guard lock(state().mutex);
    state().streams.insert(made->stream.get());
    *stream = made;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    DOUBLE_END(stream->stream->device());
    stream->stream->close();
    const std::lock_guard lock(state().mutex);
    state().streams.erase(stream->stream.get());
    state().closed_streams.push_back(stream->stream);
    delete stream;
    return injected;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    cuda_double::Stream& its = cuda_double::stream_of(stream);
    DOUBLE_CALL(its.device());
    its.synchronize();
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    cuda_double::Stream& its = cuda_double::stream_of(stream);
    DOUBLE_CALL(its.device());
    *status = its.capture() ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    cuda_double::Stream& its = cuda_double::stream_of(stream);
    DOUBLE_CALL(its.device());
    ++cuda_double::captures();
    its.set_capture(std::make_shared<cuda_double::Capture>(&its));
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    cuda_double::Stream& its = cuda_double::stream_of(stream);
    DOUBLE_END(its.device());
    const std::shared_ptr<cuda_double::Capture> capture = its.capture();
    *graph = nullptr;
    if (!capture || capture->origin() != &its) return failed(cudaErrorIllegalState);
    const std::lock_guard lock(state().mutex);
    for (cuda_double::Stream* other : state().streams)
        if (other->capture() == capture) other->set_capture(nullptr);
    --cuda_double::captures();
    if (injected != cudaSuccess) return injected;
    if (!capture->is_joined()) return failed(cudaErrorStreamCaptureUnjoined);
    *graph = new CUgraph_st{capture->tasks()};
    state().graphs.insert(*graph);
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
    const int device = cuda_double::current_device();
    DOUBLE_CALL(device);
    *executable = new CUgraphExec_st{graph->tasks, device};
    const std::lock_guard lock(state().mutex);
    state().graphs.insert(*executable);
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    cuda_double::Stream& its = cuda_double::stream_of(stream);
    DOUBLE_CALL(its.device());
    if (its.device() != executable->device) cuda_double::problem("a graph on another device's stream");
    for (const cuda_double::Capture::Task& task : executable->tasks) its.add(task());
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    const std::lock_guard lock(state().mutex);
    state().graphs.erase(graph);
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    DOUBLE_END(executable->device);
    const std::lock_guard lock(state().mutex);
    state().graphs.erase(executable);
    delete executable;
    return injected;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    std::swap(cuda_double::capture_mode, *mode);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
    DOUBLE_CALL(cuda_double::current_device());
    cuda_double::refuse_while_captured(__func__);
    cuda_double::wait_for_device(cuda_double::current_device());
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    const int device = cuda_double::current_device();
    DOUBLE_CALL(device);
    *event = new CUevent_st;
    (*event)->device = device;
    const std::lock_guard lock(state().mutex);
    state().events.insert(*event);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    DOUBLE_END(event->device);
    {
        const std::lock_guard lock(state().mutex);
        state().events.erase(event);
    }
    delete event;
    return injected;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    cuda_double::Stream& its = cuda_double::stream_of(stream);
    DOUBLE_CALL(its.device());
    if (its.device() != event->device) {
        cuda_double::problem("an event of one device was recorded in a stream of another");
        return failed(cudaErrorInvalidResourceHandle);
    }
    event->capture = its.capture();
    if (event->capture) {
        event->past = event->capture->past(&its);
        return cudaSuccess;
    }
    std::uint64_t generation = 0;
    {
        const std::lock_guard lock(event->progress->mutex);
        generation = ++event->progress->recorded;
    }
    its.add([progress = event->progress, generation] {
        const std::lock_guard lock(progress->mutex);
        progress->reached = std::max(progress->reached, generation);
        progress->changed.notify_all();
    });
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    DOUBLE_CALL(event->device);
    cuda_double::refuse_while_captured(__func__);
    const std::lock_guard lock(event->progress->mutex);
    return event->progress->reached == event->progress->recorded ? cudaSuccess : failed(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    DOUBLE_CALL(event->device);
    std::unique_lock lock(event->progress->mutex);
    event->progress->changed.wait(lock,
                                  [&] { return event->progress->reached == event->progress->recorded; });
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    cuda_double::Stream& its = cuda_double::stream_of(stream);
    DOUBLE_CALL(its.device());
    if (event->capture) {
        its.set_capture(event->capture);
        event->capture->wait(&its, event->past);
        return cudaSuccess;
    }
    if (its.capture()) {
        cuda_double::problem("a stream that is captured waits for one that is not");
        return failed(cudaErrorStreamCaptureIsolation);
    }
    std::uint64_t generation = 0;
    {
        const std::lock_guard lock(event->progress->mutex);
        generation = event->progress->recorded;
    }
    its.add([progress = event->progress, generation] {
        std::unique_lock lock(progress->mutex);
        progress->changed.wait(lock, [&] { return progress->reached >= generation; });
    });
    return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
    const int device = cuda_double::current_device();
    DOUBLE_CALL(device);
    cuda_double::refuse_while_captured(__func__);
    if (bytes > std::size_t{1} << 40) return failed(cudaErrorMemoryAllocation);
    *data = cuda_double::allocate(bytes, device, cuda_double::MemoryKind::device);
    return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
    int device = cuda_double::current_device();
    {
        const std::lock_guard lock(state().mutex);
        const auto found = cuda_double::find_memory(data);
        if (found != state().memory.end()) device = found->second.device;
    }
    DOUBLE_END(device);
    cuda_double::refuse_while_captured(__func__);
    cuda_double::wait_for_device(device);
    return cuda_double::release_memory(data, "cudaFree") ? injected : failed(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
    DOUBLE_CALL(peer);
    *can = device != peer ? 1 : 0;
    return cudaSuccess;
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
    DOUBLE_CALL(properties->location.id);
    *pool = new CUmemPoolHandle_st{properties->location.id, false};
    const std::lock_guard lock(state().mutex);
    state().pools.insert(*pool);
    return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
    DOUBLE_END(pool->device);
    const std::lock_guard lock(state().mutex);
    state().pools.erase(pool);
    delete pool;
    return injected;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr, void*) {
    DOUBLE_CALL(pool->device);
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* others, std::size_t count) {
    DOUBLE_CALL(pool->device);
    for (std::size_t i = 0; i < count; ++i) {
        if (others[i].location.id == pool->device)
            cuda_double::problem("a pool was opened to its own device");
    }
    pool->is_open = true;
    return cudaSuccess;
}

cudaError_t cudaMallocFromPoolAsync(void** data, std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
    cuda_double::Stream& its = cuda_double::stream_of(stream);
    DOUBLE_CALL(its.device());
    {
        const std::lock_guard lock(state().mutex);
        if (state().devices > 1 && !pool->is_open)
            state().problems.push_back("memory of a pool that other devices do not reach");
        if (!state().pools.contains(pool)) state().problems.push_back("memory of a pool that does not exist");
    }
    *data = cuda_double::allocate(bytes, its.device(), cuda_double::MemoryKind::device);
    its.add([] {});
    return cudaSuccess;
}

cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
    cuda_double::Stream& its = cuda_double::stream_of(stream);
    DOUBLE_END(its.device());
    its.add([data] { static_cast<void>(cuda_double::release_memory(data, "cudaFreeAsync")); });
    return injected;
}

cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
    DOUBLE_CALL(cuda_double::current_device());
    cuda_double::refuse_while_captured(__func__);
    *data = cuda_double::allocate(bytes, cuda_double::current_device(), cuda_double::MemoryKind::pinned);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void* data) {
    DOUBLE_END(cuda_double::current_device());
    return cuda_double::release_memory(data, "cudaFreeHost") ? injected : failed(cudaErrorInvalidValue);
}

cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
    cuda_double::Stream& its = cuda_double::stream_of(nullptr);
    DOUBLE_CALL(its.device());
    its.add([=] { std::memset(cuda_double::translate(data, bytes, -1, "cudaMemset"), value, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
    cuda_double::Stream& its = cuda_double::stream_of(stream);
    DOUBLE_CALL(its.device());
    its.add([=] { std::memset(cuda_double::translate(data, bytes, -1, "cudaMemsetAsync"), value, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
    cuda_double::Stream& its = cuda_double::stream_of(stream);
    DOUBLE_CALL(its.device());
    // Memory that is not page-locked is read and written before the call returns.
    const auto is_known = [](const void* data) {
        const std::lock_guard lock(state().mutex);
        return cuda_double::find_memory(data) != state().memory.end();
    };
    const bool from_pageable = !is_known(from);
    const bool to_pageable = !is_known(to);
    if ((from_pageable || to_pageable) && its.capture())
        cuda_double::problem("a copy of memory that is not page-locked is captured");
    auto copied = std::make_shared<std::vector<std::byte>>();
    if (from_pageable) {
        const auto* begin = static_cast<const std::byte*>(from);
        copied->assign(begin, begin + bytes);
    }
    its.add([=] {
        const std::byte* source =
            from_pageable ? copied->data() : cuda_double::translate(from, bytes, -1, "cudaMemcpyAsync");
        std::memmove(cuda_double::translate(to, bytes, -1, "cudaMemcpyAsync"), source, bytes);
    });
    if (to_pageable) its.synchronize();
    return cudaSuccess;
}
}
