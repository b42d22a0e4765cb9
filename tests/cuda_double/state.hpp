// What the stand-ins for CUDA and for NCCL share.
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

/// A stream's work, done in order and late by a thread of its own.
class Stream {
  public:
    explicit Stream(int device);
    ~Stream() = default;
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    [[nodiscard]] int device() const { return device_; }
    void add(std::function<void()> task);
    /// The same of what the task makes: here, or whenever a graph that it goes into is launched.
    void add_made(Capture::Task task);
    /// Until all that it has been given is done.
    void synchronize();
    /// Ends the thread when all is done. Does not wait.
    void close();
    void join();

    /// NCCL has been given a call on this stream and has not taken it in yet: nothing else may be put there.
    std::atomic<int> launching = 0;

    /// Where what it is given goes meanwhile; null where it is not captured.
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
    std::byte* alias = nullptr;  // where it can be read and written
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

/// At the beginning of each call: counts it, and carries faults out. Returns the error to return; 0 for none.
int on_call(const char* function, int device);

/// The error with which the next operation on the device goes wrong in the background; 0 for none.
int background_fault(int device);

[[nodiscard]] int current_device();

/// The stream behind a handle; the device's default stream for null.
Stream& stream_of(cudaStream_t handle, int device = current_device());

/// Where the bytes can be read and written. Notes a problem where they are not all of one allocation, or
/// where `device`, unless it is -1, is not theirs.
std::byte* translate(const void* data, std::size_t bytes, int device, const char* who);

void* allocate(std::size_t bytes, int device, MemoryKind kind);
bool release_memory(void* data, const char* who);

void wait_for_device(int device);

}  // namespace cuda_double
