// Test double for the CUDA runtime and NCCL, for machines without a GPU. It implements the functions that
// dptk calls. A program that links it includes the real headers. Devices are numbers, and ranks are threads
// with one device each. Device memory is mapped so that the host cannot access it at its address. Streams
// are threads with random delays.
//
// Forbidden calls are recorded, and still carried out if possible: problems() returns them.
#pragma once

#include <string>
#include <vector>

namespace cuda_double {

/// Resets the state to a new process on a machine with so many GPUs.
void reset(int devices);

/// Releases all calls that hang, and waits for all operations.
void finish();

/// Returns the forbidden calls and the invalid memory accesses.
[[nodiscard]] std::vector<std::string> problems();

/// Returns the objects that were created and not destroyed: communicators, streams, events, memory.
[[nodiscard]] std::vector<std::string> leftovers();

/// Removes all memory from the leftovers, if it was leaked on purpose.
void forget_memory();

/// A function that is called on a device.
struct Place {
    std::string function;
    int device = 0;

    friend auto operator<=>(const Place&, const Place&) = default;
};

/// How often a function was called on a device.
struct Count {
    Place place;
    int calls = 0;
};
[[nodiscard]] std::vector<Count> counts();

/// Makes the nth call (from 1) of a function on a device return this error without any effect.
void fail(const Place& place, int nth, int error);

/// Makes the nth call block until release().
void hang(const Place& place, int nth);

/// Delays the nth call.
void delay(const Place& place, int nth, int milliseconds);

/// Makes the nth NCCL operation of this device hang, and NCCL report this asynchronous error.
void fail_in_background(int device, int nth, int error);

/// Releases all calls that hang, and removes all faults.
void release();

/// Makes two devices count as the same GPU.
void put_on_one_gpu(int device, int other);

/// Sets the version that NCCL reports.
void set_nccl_version(int version);

/// Returns the address at which tests can access device memory on the host.
[[nodiscard]] void* host_address(const void* device_memory);

}  // namespace cuda_double
