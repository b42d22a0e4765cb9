// A user's own transport: messages between processes of one host, over pipes. To bring a network of your own,
// copy this class and put your network where the pipes are.
//
// The Transport concept (dptk/comm/transport.hpp) wants five things, all of them below:
//   rank(), size()          who this process is, and how many there are
//   backend()               a short name for messages
//   send(buffer, to, tag)   returns when the buffer may be changed again; may wait until it has been received
//   recv(buffer, from, tag) returns when a message of exactly that many bytes has arrived
// Messages with one tag from one rank to another arrive in the order in which they were sent. A failure
// throws: PeerLostError where the other rank is gone.
//
// dptk adds the rest by itself: all collectives, for all types of elements, all operations and any number of
// ranks; *_async calls, each of which takes its turn, so that only one thread at a time is in a transport;
// deadlines; and the end of the job where a rank fails. What a transport may bring besides (its own
// all_reduce, recv_any, duplicate() for communication in the background of training, ...) is listed with the
// concept.
#pragma once

#include <dptk/comm/communicator.hpp>

#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Owns one end of a pipe, and closes it.
class PipeEnd {
  public:
    PipeEnd() = default;
    explicit PipeEnd(int descriptor) : descriptor_(descriptor) {}
    PipeEnd(PipeEnd&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
    PipeEnd& operator=(PipeEnd&& other) noexcept {
        std::swap(descriptor_, other.descriptor_);
        return *this;
    }
    ~PipeEnd() {
        if (descriptor_ >= 0) ::close(descriptor_);
    }

    [[nodiscard]] int descriptor() const { return descriptor_; }

  private:
    int descriptor_ = -1;
};

/// A rank's ends of the two pipes between it and another rank.
struct PipePair {
    PipeEnd in;
    PipeEnd out;
};

/// Goes ahead of each message.
struct PipeEnvelope {
    std::uint64_t bytes;
    std::int64_t tag;

    bool operator==(const PipeEnvelope&) const = default;
    [[nodiscard]] std::string text() const {
        return std::to_string(bytes) + " bytes with tag " + std::to_string(tag);
    }
};

class PipeTransport {
  public:
    /// `pairs[i]` connects this process, which is rank `rank`, with rank i; its own place stays unused.
    /// SIGPIPE must be ignored. For a lost rank to be noticed, no process may hold ends that are not its own.
    PipeTransport(int rank, std::vector<PipePair> pairs) : rank_(rank), pairs_(std::move(pairs)) {}

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int size() const { return static_cast<int>(pairs_.size()); }
    [[nodiscard]] std::string_view backend() const { return "pipes"; }

    void send(const dptk::Buffer& buffer, int to, int tag) {
        PipeEnvelope envelope{buffer.bytes(), tag};
        move_all(::write, pair(to).out, &envelope, sizeof envelope, to);
        move_all(::write, pair(to).out, buffer.data, buffer.bytes(), to);
    }

    void recv(const dptk::Buffer& buffer, int from, int tag) {
        const PipeEnvelope expected{buffer.bytes(), tag};
        PipeEnvelope found{};
        move_all(::read, pair(from).in, &found, sizeof found, from);
        if (found != expected) {
            throw dptk::MismatchError(name(rank_) + " expects " + expected.text() + " from " + name(from) +
                                      ", which has sent " + found.text());
        }
        move_all(::read, pair(from).in, buffer.data, buffer.bytes(), from);
    }

  private:
    [[nodiscard]] const PipePair& pair(int rank) const { return pairs_[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] static std::string name(int rank) { return "rank " + std::to_string(rank); }

    /// `move` is read or write: either may move fewer bytes than asked for, or be interrupted by a signal.
    template <class Move>
    void move_all(Move move, const PipeEnd& end, void* data, std::size_t bytes, int peer) const {
        auto* next = static_cast<char*>(data);
        while (bytes > 0) {
            const ssize_t moved = move(end.descriptor(), next, bytes);
            const int error = moved < 0 ? errno : 0;
            if (error == EINTR) continue;
            if (moved == 0 || error == EPIPE)
                throw dptk::PeerLostError(name(rank_) + ": " + name(peer) + " has closed its pipe");
            if (error != 0)
                throw dptk::BackendError(name(rank_) + ": pipe of " + name(peer) + ": " +
                                         std::strerror(error));
            next += moved;
            bytes -= static_cast<std::size_t>(moved);
        }
    }

    int rank_;
    std::vector<PipePair> pairs_;
};

static_assert(dptk::Transport<PipeTransport>);

using PipeCommunicator = dptk::BasicCommunicator<PipeTransport>;
