/// Messages over Gloo, which kills the process if a message has another size than the receiver expects. So
/// each message is sent as two Gloo messages: a header, and the data, in a slot with the number that the
/// header contains. All headers of a rank arrive in one slot, in the order of sending, and a thread gives
/// them to the receives that wait for them, in the order in which these were posted.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/gloo/mesh.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// The header of a message, as it is sent: its size, the number of its data, and its tag.
struct GlooHeader {
    std::uint64_t bytes = 0;
    std::uint64_t number = 0;
    std::uint64_t tag = 0;
};

/// The messages of one mesh. Any thread may call it. What throws gloo::IoException must be called inside
/// GlooMesh::run.
class GlooInbox {
  public:
    /// A header, and its sender.
    struct Arrived {
        int from = any_rank;
        GlooHeader header = {};
    };

    /// A receive that waits for a header.
    struct Wanted {
        int from = any_rank;
        int tag = 0;
        std::optional<Arrived> found = {};
    };

    explicit GlooInbox(std::shared_ptr<GlooMesh> mesh);
    ~GlooInbox();
    GlooInbox(const GlooInbox&) = delete;
    GlooInbox& operator=(const GlooInbox&) = delete;

    [[nodiscard]] const std::shared_ptr<GlooMesh>& mesh() const noexcept { return mesh_; }

    /// Returns the number of this rank's next message.
    [[nodiscard]] std::uint64_t next_message() noexcept { return messages_++; }

    /// Posts a receive.
    [[nodiscard]] std::shared_ptr<Wanted> want(int from, int tag);

    /// Blocks until the header has arrived. Throws gloo::IoException if the connections are closed.
    [[nodiscard]] Arrived await(const Wanted& wanted);

    /// Withdraws a receive whose header has not arrived.
    void forget(const std::shared_ptr<Wanted>& wanted) noexcept;

    /// Returns the first message of the program that has arrived, that no receive waits for, and that has
    /// this sender and tag, or any_rank and any_tag. Does not block.
    [[nodiscard]] std::optional<Arrived> find(int from, int tag);

  private:
    [[nodiscard]] static bool matches(int from, int tag, const Arrived& arrived) noexcept;

    /// Receives headers until the connections are closed.
    void listen() noexcept;

    const std::shared_ptr<GlooMesh> mesh_;
    std::atomic<std::uint64_t> messages_ = 0;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::list<std::shared_ptr<Wanted>> wanted_;  // in the order of posting
    std::list<Arrived> unexpected_;              // in the order of arrival
    bool has_ended_ = false;
    GlooHeader next_;
    GlooBuffer next_buffer_;
    std::thread listener_;
};

/// One message, posted by its constructor. The constructor and complete() must run inside GlooMesh::run.
class GlooMessage {
  public:
    GlooMessage(std::shared_ptr<GlooInbox> inbox, const Message& message);
    ~GlooMessage();
    GlooMessage(const GlooMessage&) = delete;  // Gloo keeps pointers to the members
    GlooMessage& operator=(const GlooMessage&) = delete;

    /// Blocks until the message is transferred. Returns the other rank. Throws MismatchError if the message
    /// and the receive buffer differ in size; the sender then keeps waiting.
    int complete();

  private:
    const std::shared_ptr<GlooInbox> inbox_;
    const Message message_;
    GlooHeader header_;
    GlooBuffer header_buffer_;
    GlooBuffer data_buffer_;
    std::shared_ptr<GlooInbox::Wanted> wanted_;  // null for a message that is sent
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/gloo/messages.ipp"
#endif
