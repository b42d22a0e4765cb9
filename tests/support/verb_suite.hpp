// What every verb must do, whatever carries it out: to be run over each transport and each algorithm. Results
// are compared with what one process computes here. With every dtype at up to four ranks, with some above.
#pragma once

#include <dptk/comm/process_group.hpp>

namespace test {

/// All reducing verbs with every dtype and operation: each root, no elements and some, in place and not,
/// aligned and not, blocking and not. Operations without a meaning are refused.
void check_reductions(dptk::ProcessGroup& group);

/// The same for the verbs that only move elements, with user structs as well.
void check_moves(dptk::ProcessGroup& group);

/// Functions of the user's, over structs and numbers, in rank order.
void check_user_functions(dptk::ProcessGroup& group);

/// send and recv between all pairs of ranks.
void check_messages(dptk::ProcessGroup& group);

/// Messages that go on by themselves: many at once, in any order, from any rank, beside collectives. Not for
/// transports that carry out one call after the other.
void check_messages_in_background(dptk::ProcessGroup& group);

/// Many calls under way at once, handles that are dropped, a thousand calls in a row.
void check_many(dptk::ProcessGroup& group);

/// All of these, but for messages in the background.
void check_verbs(dptk::ProcessGroup& group);

}  // namespace test
