/// An open connection between two ranks: sends queued headers and data, and separates what arrives into
/// headers and their data. Nothing blocks.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <exception>
#include <span>
#include <string>
#include <utility>

#include "dptk/comm/tcp/header.hpp"
#include "dptk/comm/tcp/operation.hpp"
#include "dptk/control/net/socket.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Receives what arrives over a connection.
class TcpReader {
  public:
    TcpReader() = default;
    TcpReader(const TcpReader&) = delete;
    TcpReader& operator=(const TcpReader&) = delete;
    virtual ~TcpReader() = default;

    /// Called with each header. Returns where to store the data that follows; null to discard it.
    virtual std::byte* begin(const TcpHeader& header) = 0;

    /// Called when all data of a header has arrived.
    virtual void end(const TcpHeader& header) = 0;
};

class TcpConnection {
  public:
    explicit TcpConnection(Socket socket) : socket_(std::move(socket)) {}

    [[nodiscard]] const Socket& socket() const noexcept { return socket_; }

    /// Queues a header, and the data that has_data() says follows it. Completes `operation` when everything
    /// has been handed to the system; the data must exist until then.
    void push(const TcpHeader& header, const void* data = nullptr, TcpOperation* operation = nullptr);

    /// Sends as much of the queue as the system accepts. Returns false if the connection has ended.
    [[nodiscard]] bool flush();

    [[nodiscard]] bool has_output() const noexcept { return !queue_.empty(); }

    /// Receives what has arrived, for a bounded time. Uses `workspace` for headers and short data. Returns
    /// false if the connection has ended.
    [[nodiscard]] bool receive(std::span<std::byte> workspace, TcpReader& reader);

    /// Whether the last receive() has received anything.
    [[nodiscard]] bool has_received() const noexcept { return has_received_; }

    /// How many bytes of the arriving data have arrived.
    [[nodiscard]] std::size_t arrived() const noexcept { return header_.bytes - data_left_; }

    /// Stores the rest of the arriving data at `target`.
    void redirect(std::byte* target) noexcept { target_ = target; }

    /// Completes the operations of the queue with this error.
    void abandon(const std::exception_ptr& error) noexcept;

    /// Why the connection has ended.
    [[nodiscard]] const std::string& problem() const noexcept { return problem_; }

  private:
    struct Output {
        TcpHeader header;
        const std::byte* data;
        TcpOperation* operation;

        [[nodiscard]] std::size_t data_bytes() const noexcept { return has_data(header) ? header.bytes : 0; }
    };

    /// Removes `bytes` that have been sent from the queue.
    void advance(std::size_t bytes);

    /// Parses bytes of the workspace. Returns false if they are invalid.
    [[nodiscard]] bool parse(std::span<const std::byte> bytes, TcpReader& reader);

    void take_data(std::size_t bytes, TcpReader& reader);

    [[nodiscard]] bool end(int error);

    Socket socket_;
    std::deque<Output> queue_;
    std::size_t sent_ = 0;  // bytes of the first output in the queue
    std::array<std::byte, sizeof(TcpHeader)> header_bytes_;
    std::size_t header_arrived_ = 0;
    TcpHeader header_;
    std::size_t data_left_ = 0;
    std::byte* target_ = nullptr;
    bool is_invalid_ = false;  // a header was
    bool has_received_ = false;
    std::string problem_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/tcp/connection.ipp"
#endif
