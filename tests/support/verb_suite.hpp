// What every verb must do, whatever carries it out: to be run over each transport and each algorithm. Results
// are compared with what one process computes here. With every dtype at up to four ranks, with a
// few above.
#pragma once

#include <dptk/comm/process_group.hpp>

#include <cstddef>
#include <memory>

namespace test {

/// Memory of another kind than the program's own, in which the buffers of calls lie.
class OtherMemory {
  public:
    OtherMemory() = default;
    OtherMemory(const OtherMemory&) = delete;
    OtherMemory& operator=(const OtherMemory&) = delete;
    virtual ~OtherMemory() = default;

    [[nodiscard]] virtual dptk::Device device() const = 0;
    [[nodiscard]] virtual dptk::StreamRef stream() const = 0;
    [[nodiscard]] virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
    /// To this memory, and back; in the order of the stream. The second one blocks.
    virtual void write(void* to, const void* from, std::size_t bytes) = 0;
    virtual void read(void* to, const void* from, std::size_t bytes) = 0;
};

/// How sums and products of the 16-bit formats are rounded.
enum class Rounding { once, on_the_way };

/// What differs between the groups that are tested.
struct Terrain {
    /// Null for the program's own.
    OtherMemory* memory = nullptr;
    Rounding rounding = Rounding::once;
};

/// All reducing verbs with every dtype and operation: each root, no elements and some, in place and not,
/// aligned and not, blocking and not. Operations without a meaning are refused.
void check_reductions(dptk::ProcessGroup& group);
void check_reductions_on(dptk::ProcessGroup& group, const Terrain& terrain);

/// The same for the verbs that only move elements, with user structs as well.
void check_moves(dptk::ProcessGroup& group);
void check_moves_on(dptk::ProcessGroup& group, const Terrain& terrain);

/// Sums in which each rank's elements have a weight of their own.
void check_weighted_sums(dptk::ProcessGroup& group);
void check_weighted_sums_on(dptk::ProcessGroup& group, const Terrain& terrain);

/// Functions of the user's, over structs and numbers, in rank order.
void check_user_functions(dptk::ProcessGroup& group);

/// send and recv between all pairs of ranks.
void check_messages(dptk::ProcessGroup& group);

/// Messages that go on by themselves: many at once, in any order, from any rank, beside collectives. Not for
/// transports that carry out one call after the other.
void check_messages_in_background(dptk::ProcessGroup& group);

/// Many calls under way at once, handles that are dropped, a thousand calls in a row.
void check_many(dptk::ProcessGroup& group);

/// Elements in memory that the group has allocated, on all ranks and on every other one, and many of them in
/// the program's own.
void check_allocated_memory(dptk::ProcessGroup& group);

/// All but messages in the background, and allocated memory.
void check_verbs(dptk::ProcessGroup& group);
void check_verbs_on(dptk::ProcessGroup& group, const Terrain& terrain);

}  // namespace test
