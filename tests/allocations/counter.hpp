// Counts the allocations of heap memory by all threads of this process. counter.cpp replaces operator new.
#pragma once

#include <dptk/ddp.hpp>

#include <algorithm>
#include <cstddef>

namespace test {

/// Begins to count, from 0.
void count_allocations();

/// Stops counting, and returns the number of allocations since count_allocations(), without those in oneDNN:
/// it allocates memory for each primitive that it runs, which cannot be avoided.
[[nodiscard]] std::size_t counted_allocations();

/// Makes the n-th allocation of this thread from now on throw std::bad_alloc, once. 0 cancels that.
void fail_allocation_of_this_thread(long n);

/// Prints where the last counted allocations were made, as offsets for addr2line.
void print_allocations();

/// Returns how often `action` allocates.
template <class Action>
[[nodiscard]] std::size_t allocations(Action&& action) {
    count_allocations();
    action();
    return counted_allocations();
}

/// Returns whether started calls of the group allocate: over MPI below MPI_THREAD_MULTIPLE, where they
/// progress while the program waits.
[[nodiscard]] inline bool allocates_for_started_calls(dptk::ProcessGroup& group) {
    return group.engine().progresses_by_caller();
}

/// Returns how often the ranks of this process allocate while each of them calls `action`, which may
/// communicate: the least of several attempts, because control threads send heartbeats meanwhile. Collective.
/// Ends when an attempt of each process has not allocated.
template <class Action>
[[nodiscard]] std::size_t allocations_on_ranks(dptk::ProcessGroup& group, Action&& action) {
    std::size_t least = static_cast<std::size_t>(-1);
    for (int attempt = 0; attempt < 20; ++attempt) {
        group.barrier();
        count_allocations();
        group.barrier();
        action();
        group.barrier();
        least = std::min(least, counted_allocations());
        if (group.all_reduce_value(least, dptk::ReduceOp::max) == 0) break;
    }
    return least;
}

}  // namespace test
