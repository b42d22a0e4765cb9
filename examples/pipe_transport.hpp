// A custom transport: messages between processes of one host, over pipes. To support an interconnect of your
// own, copy this class and replace the pipes.
//
// A transport derives from dptk::Transport (dptk/comm/transport.hpp), and overrides at least five functions:
//   rank(), size()          this process's rank, and the number of ranks
//   backend()               a short name for messages
//   send(buffer, to, tag)   returns when the buffer may be changed again; may block until `to` receives it
//   recv(buffer, from, tag) returns when a message has arrived, which must have exactly the buffer's size
// Messages with one tag from one rank to another must arrive in the order in which they were sent. A call
// that fails throws: PeerLostError if the other rank has exited.
//
// dptk implements the rest with these functions: all collectives, for all element types, all operations and
// any number of ranks, and *_async calls, which run one after the other, so that only one thread at a time
// calls the transport. A transport with the capability `is_interruptible` waits only in dptk::wait_readable()
// and wait_writable(), or calls dptk::check_call() between two polls: time limits, and failures of other
// ranks, then end its calls with an exception. Otherwise they end the process.
//
// The other functions of dptk::Transport can be overridden as well: run() for native collectives, recv_any(),
// or duplicate() for communication in the background.
#pragma once

#include <dptk/comm/call_wait.hpp>
#include <dptk/comm/communicator.hpp>

#include <fcntl.h>
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

/// Owns one end of a pipe, whose reads and writes do not block.
class PipeEnd {
  public:
    PipeEnd() = default;
    explicit PipeEnd(int descriptor) : descriptor_(descriptor) { ::fcntl(descriptor, F_SETFL, O_NONBLOCK); }
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

/// The header that is sent before each message.
struct PipeEnvelope {
    std::uint64_t bytes;
    std::int64_t tag;

    bool operator==(const PipeEnvelope&) const = default;
    [[nodiscard]] std::string text() const {
        return std::to_string(bytes) + " bytes with tag " + std::to_string(tag);
    }
};

class PipeTransport final : public dptk::Transport {
  public:
    /// Creates the transport of rank `rank`. `pairs[i]` connects that rank with rank i; `pairs[rank]` is
    /// unused. SIGPIPE must be ignored. The loss of a rank is detected only if no process holds pipe ends of
    /// other ranks.
    PipeTransport(int rank, std::vector<PipePair> pairs) : rank_(rank), pairs_(std::move(pairs)) {}

    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return static_cast<int>(pairs_.size()); }
    [[nodiscard]] std::string_view backend() const override { return "pipes"; }
    [[nodiscard]] dptk::TransportCapabilities capabilities() const override {
        return {.is_interruptible = true};
    }

    void send(const dptk::Buffer& buffer, int to, int tag) override {
        PipeEnvelope envelope{buffer.bytes(), tag};
        write_all(to, &envelope, sizeof envelope);
        write_all(to, buffer.data, buffer.bytes());
    }

    void recv(const dptk::Buffer& buffer, int from, int tag) override {
        const PipeEnvelope expected{buffer.bytes(), tag};
        PipeEnvelope found{};
        read_all(from, &found, sizeof found);
        if (found != expected) {
            throw dptk::MismatchError(name(rank_) + ": expected " + expected.text() + " from " + name(from) +
                                      ", got " + found.text());
        }
        read_all(from, buffer.data, buffer.bytes());
    }

  private:
    [[nodiscard]] const PipePair& pair(int rank) const { return pairs_[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] static std::string name(int rank) { return "rank " + std::to_string(rank); }

    void read_all(int from, void* data, std::size_t bytes) const {
        move_all(::read, dptk::wait_readable, pair(from).in, data, bytes, from);
    }

    void write_all(int to, void* data, std::size_t bytes) const {
        move_all(::write, dptk::wait_writable, pair(to).out, data, bytes, to);
    }

    /// Reads or writes all bytes. `move` is ::read or ::write, which may move fewer bytes than requested,
    /// or none, or be interrupted by a signal.
    template <class Move, class Wait>
    void move_all(Move move, Wait wait, const PipeEnd& end, void* data, std::size_t bytes, int peer) const {
        auto* next = static_cast<char*>(data);
        while (bytes > 0) {
            const ssize_t moved = move(end.descriptor(), next, bytes);
            const int error = moved < 0 ? errno : 0;
            if (error == EAGAIN) wait(end.descriptor());
            if (error == EAGAIN || error == EINTR) continue;
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

using PipeCommunicator = dptk::BasicCommunicator<PipeTransport>;
