// State that the test doubles for CUDA and NCCL share.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cuda_double/double.hpp"
#include "cuda_double/graphs.hpp"

namespace cuda_double {

/// A stream. A thread of its own runs its tasks in order, with delays.
class Stream {
  public:
    explicit Stream(int device);
    ~Stream() = default;
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    [[nodiscard]] int device() const { return device_; }
    void add(std::function<void()> task);
    /// Adds the operation that the task creates: now, or at each launch of the graph if the stream is
    /// captured.
    void add_made(Capture::Task task);
    /// Blocks until all tasks are done.
    void synchronize();
    /// Ends the thread when all tasks are done. Does not block.
    void close();
    void join();

    /// The number of NCCL calls on this stream that NCCL has not accepted yet. Meanwhile nothing else may
    /// be enqueued.
    std::atomic<int> launching = 0;

    /// The capture that receives the tasks; null if the stream is not captured.
    [[nodiscard]] std::shared_ptr<Capture> capture();
    void set_capture(std::shared_ptr<Capture> capture);

  private:
    void serve();

    int device_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> tasks_;
    std::shared_ptr<Capture> capture_;
    bool busy_ = false;
    bool closing_ = false;
    std::thread thread_;
};

enum class MemoryKind { device, pinned, nccl };

struct Allocation {
    std::size_t bytes = 0;
    int device = 0;
    MemoryKind kind = MemoryKind::device;
    std::byte* alias = nullptr;  // the address at which the host can access it
};

struct Fault {
    enum class Kind { error, hang, delay, background } kind = Kind::error;
    int nth = 1;
    int value = 0;
};

struct State {
    std::mutex mutex;
    std::condition_variable changed;
    int devices = 0;
    std::map<int, int> same_gpu;
    int nccl_version = 0;
    std::map<std::uintptr_t, Allocation> memory;
    std::set<const void*> registered;
    std::map<Place, int> counts;
    std::map<Place, std::vector<Fault>> faults;
    std::uint64_t released = 0;
    std::vector<std::string> problems;
    std::set<Stream*> streams;
    std::map<int, std::shared_ptr<Stream>> default_streams;
    std::vector<std::shared_ptr<Stream>> closed_streams;
    std::set<const void*> events;
    std::set<const void*> comms;
    std::set<const void*> pools;
    std::set<const void*> graphs;
};

State& state();

void problem(const std::string& text);

/// Counts a call and injects its faults. Every function calls it first. Returns the error to return; 0 for
/// none.
int on_call(const char* function, int device);

/// Returns the asynchronous error of the next operation on the device; 0 for none.
int background_fault(int device);

[[nodiscard]] int current_device();

/// Returns the stream of a handle; the device's default stream for null.
Stream& stream_of(cudaStream_t handle, int device = current_device());

/// Returns the address at which the host can access the bytes. Records a problem if they are not within one
/// allocation, or, unless `device` is -1, not on this device.
std::byte* translate(const void* data, std::size_t bytes, int device, const char* who);

void* allocate(std::size_t bytes, int device, MemoryKind kind);
bool release_memory(void* data, const char* who);

void wait_for_device(int device);

}  // namespace cuda_double
