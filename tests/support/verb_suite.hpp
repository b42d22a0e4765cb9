// The verb suite: checks of every collective and message verb, which tests run over each transport and each
// algorithm. Results are compared with what one process computes. It covers every dtype with up to four
// ranks, and a few dtypes with more.
#pragma once

#include <dptk/comm/process_group.hpp>

#include <cstddef>
#include <memory>

namespace test {

/// Memory for the buffers of calls, other than the program's heap: device memory, or memory of the group.
class OtherMemory {
  public:
    OtherMemory() = default;
    OtherMemory(const OtherMemory&) = delete;
    OtherMemory& operator=(const OtherMemory&) = delete;
    virtual ~OtherMemory() = default;

    [[nodiscard]] virtual dptk::Device device() const = 0;
    [[nodiscard]] virtual dptk::StreamRef stream() const = 0;
    [[nodiscard]] virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
    /// Copies from the host to this memory, in stream order; read() copies back and blocks.
    virtual void write(void* to, const void* from, std::size_t bytes) = 0;
    virtual void read(void* to, const void* from, std::size_t bytes) = 0;
};

/// When sums and products of the 16-bit formats are rounded: once, or after each addition.
enum class Rounding { once, on_the_way };

/// The parameters in which the tested groups differ.
struct VerbSuiteOptions {
    /// The memory of the calls' buffers; null for the program's heap.
    OtherMemory* memory = nullptr;
    Rounding rounding = Rounding::once;
};

/// Checks all reducing verbs with every dtype, operation and root, with and without elements, in place and
/// out of place, aligned and unaligned, blocking and asynchronous. Checks that undefined operations are
/// rejected.
void check_reductions(dptk::ProcessGroup& group);
void check_reductions_on(dptk::ProcessGroup& group, const VerbSuiteOptions& options);

/// Checks that a NaN of any rank, at any place, is the result of min and max, with every floating-point
/// dtype.
void check_nan(dptk::ProcessGroup& group);

/// Checks the verbs that do not reduce in the same variants, also with user structs.
void check_moves(dptk::ProcessGroup& group);
void check_moves_on(dptk::ProcessGroup& group, const VerbSuiteOptions& options);

/// Checks sums in which each rank's elements have a different weight.
void check_weighted_sums(dptk::ProcessGroup& group);
void check_weighted_sums_on(dptk::ProcessGroup& group, const VerbSuiteOptions& options);

/// Checks that user functions on structs and numbers combine the elements in rank order.
void check_user_functions(dptk::ProcessGroup& group);

/// Checks send and recv between all pairs of ranks.
void check_messages(dptk::ProcessGroup& group);

/// Checks messages that progress in the background: many at once, in any order, from any rank, and concurrent
/// with collectives. Not for transports that execute one call after the other.
void check_messages_in_background(dptk::ProcessGroup& group);

/// Checks many concurrent calls, dropped Work handles, and a thousand consecutive calls.
void check_many(dptk::ProcessGroup& group);

/// Checks buffers in memory that the group has allocated, on all ranks or only on every other rank, and
/// checks large buffers on the program's heap.
void check_allocated_memory(dptk::ProcessGroup& group);

/// Runs all checks above except messages in the background and allocated memory.
void check_verbs(dptk::ProcessGroup& group);
void check_verbs_on(dptk::ProcessGroup& group, const VerbSuiteOptions& options);

}  // namespace test
