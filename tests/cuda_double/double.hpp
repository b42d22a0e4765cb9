// Stands in for CUDA's runtime and for NCCL, as far as dptk calls them, on machines without a GPU. A program
// that links it includes the real headers. Devices are numbers, ranks are threads with a device each; device
// memory is memory that the host cannot touch where it lies; streams are threads, which come late.
//
// What must not be done is written down, and done all the same where that is possible: problems() has it.
#pragma once

#include <string>
#include <vector>

namespace cuda_double {

/// A machine with so many GPUs, as if the process had just begun.
void reset(int devices);

/// Lets go of all that hangs, and waits for what is still under way.
void finish();

/// Calls that are forbidden, and bad memory accesses.
[[nodiscard]] std::vector<std::string> problems();

/// What has been made and not been destroyed: communicators, streams, events, memory.
[[nodiscard]] std::vector<std::string> leftovers();

/// Memory that is left behind on purpose is no leftover.
void forget_memory();

/// One call, or what has been handed over by it.
struct Place {
    std::string function;
    int device = 0;

    friend auto operator<=>(const Place&, const Place&) = default;
};

/// The places that have been called, with how often.
struct Count {
    Place place;
    int calls = 0;
};
[[nodiscard]] std::vector<Count> counts();

/// The nth call (from 1) of a function on a device returns this error, and does nothing else.
void fail(const Place& place, int nth, int error);

/// The nth call does not return before release().
void hang(const Place& place, int nth);

/// The nth call takes so long.
void delay(const Place& place, int nth, int milliseconds);

/// The nth operation of NCCL's that this device carries out never ends, and NCCL tells this error of it in
/// the background.
void fail_in_background(int device, int nth, int error);

/// Lets go of all that hangs, and of all faults.
void release();

/// Two devices count as one GPU.
void put_on_one_gpu(int device, int other);

/// What NCCL says its version is.
void set_nccl_version(int version);

/// So that tests see through the memory's disguise: where the host can read it.
[[nodiscard]] void* host_address(const void* device_memory);

}  // namespace cuda_double
