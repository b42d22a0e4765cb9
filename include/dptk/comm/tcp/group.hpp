/// A group of a mesh: matches the receives that this rank has posted with the messages that arrive.
#pragma once

#include <cstddef>
#include <exception>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/tcp/header.hpp"
#include "dptk/comm/tcp/operation.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Ranks are numbers in the job. Opened by this rank, or so far only by another one.
struct TcpGroup {
    /// A message that has arrived, or whose request has arrived, before a receive was posted.
    struct Arrived {
        int from = 0;
        TcpHeader header = {};
        std::unique_ptr<std::byte[]> data = nullptr;
    };

    explicit TcpGroup(int own_rank) : rank(own_rank) {}

    /// Returns the first message that has arrived for a receive.
    [[nodiscard]] std::list<Arrived>::iterator find_arrived(const TcpReceive& message);

    /// Removes and returns the first receive that waits for this message; null if none does.
    [[nodiscard]] TcpReceive* take_wanted(int from, const TcpHeader& header);

    /// Returns the first message of the program that has arrived with this sender and tag, or any_rank and
    /// any_tag.
    [[nodiscard]] std::optional<MessageInfo> find_message(int from, int tag) const;

    /// Returns the error of a receive whose message has another size or belongs to another collective; null
    /// if they match.
    [[nodiscard]] std::exception_ptr mismatch(int from, const TcpHeader& found,
                                              const TcpReceive& message) const;

    /// Completes the receives of the collective in which this rank waits, if the other rank waits in a
    /// different one of the same number.
    void compare(int other, const TcpHeader& question);

    /// Completes the receives of a collective from a rank that has come to a later one.
    void fail_overtaken(int other, const TcpHeader& answer);

    /// Adds the rank from which a receive waits for a message; for any_rank all that have not left.
    void add_awaited(std::set<int>& awaited, int from) const;

    int rank;                              // this one
    std::vector<int> ranks = {};           // empty until this rank has opened the group
    std::vector<TcpReceive*> wanted = {};  // in the order of posting
    std::list<Arrived> arrived = {};       // in the order of arrival
    std::set<int> left = {};               // the ranks that have closed the group
    TcpHeader call = {};                   // the last collective that this rank has begun
    std::vector<int> names = {};           // the numbers of its ranks in errors; empty for their positions
    bool is_closed = false;

  private:
    [[nodiscard]] static bool fits(const TcpReceive& message, int from, const TcpHeader& header) noexcept;
    [[nodiscard]] std::exception_ptr differing_calls(int other, const TcpHeader& theirs,
                                                     const TcpHeader& own) const;
    /// Returns the number of a rank in errors.
    [[nodiscard]] int name_of(int number) const;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/tcp/group.ipp"
#endif
