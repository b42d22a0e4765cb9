/// The headers of a program's messages over Gloo. A header says who sends a message, with which tag and size,
/// and under which number its data follows. All headers of a rank arrive in one slot, in the order of
/// sending, so that a rank can look at messages of any tag before it receives them.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/gloo/library.hpp"
#include "dptk/comm/gloo/mesh.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// The header of a message, as it is sent: its size, the number of its data, and its tag.
struct GlooHeader {
    std::uint64_t bytes = 0;
    std::uint64_t number = 0;
    std::uint64_t tag = 0;
};

/// Distributes the headers that arrive to the receives that wait for them, in the order in which these were
/// posted. Any thread may call it.
class GlooInbox {
  public:
    /// A header, and its sender.
    struct Arrived {
        int from = 0;
        GlooHeader header;
    };

    /// A receive that waits for a header.
    struct Wanted {
        int from = any_rank;
        int tag = 0;
        std::optional<Arrived> found;
    };

    explicit GlooInbox(std::shared_ptr<GlooMesh> mesh);
    ~GlooInbox();
    GlooInbox(const GlooInbox&) = delete;
    GlooInbox& operator=(const GlooInbox&) = delete;

    /// Posts a receive. Must be called inside GlooMesh::run.
    [[nodiscard]] std::shared_ptr<Wanted> want(int from, int tag);

    /// Blocks until the header has arrived. Must be called inside GlooMesh::run.
    [[nodiscard]] Arrived await(const Wanted& wanted);

    /// Withdraws a receive whose header has not arrived.
    void forget(const std::shared_ptr<Wanted>& wanted) noexcept;

    /// Returns the first message that has arrived, that no receive waits for, and that has this sender and
    /// tag, or any_rank and any_tag. Does not block: a thread waits for the next header, beginning with the
    /// first call that finds none.
    [[nodiscard]] std::optional<Arrived> find(int from, int tag);

    /// The slot of the headers. Gloo's collectives use slots with small numbers in the most significant byte.
    static constexpr std::uint64_t slot = std::uint64_t{0x40} << 56;

  private:
    /// Memory into which Gloo writes the next header.
    struct Posted {
        GlooHeader header;
        std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
    };

    [[nodiscard]] static bool matches(int from, int tag, const Arrived& arrived) noexcept;

    /// Posts memory for as many headers as receives wait for, and one more if a probe waits.
    void post_missing();

    /// Receives the next header, without the lock, and gives it to the first receive that wants it.
    void receive_one(std::unique_lock<std::mutex>& lock);

    /// Receives headers until one arrives that no receive waits for.
    void listen();

    std::shared_ptr<GlooMesh> mesh_;
    std::vector<int> others_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::list<std::shared_ptr<Wanted>> wanted_;  // in the order of posting
    std::deque<Arrived> unexpected_;             // in the order of arrival
    std::size_t unexpected_count_ = 0;           // all that have ever arrived
    std::deque<std::unique_ptr<Posted>> posted_;
    gloo::transport::UnboundBuffer* waiting_on_ = nullptr;  // while a thread receives a header
    std::thread listener_;
    bool is_listening_ = false;
    std::atomic<bool> is_stopping_ = false;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/gloo/inbox.ipp"
#endif
