#pragma once

#include "dptk/comm/tcp/connection.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "dptk/core/detail/errno_text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void TcpConnection::push(const TcpHeader& header, const void* data, TcpOperation* operation) {
    queue_.push_back({header, static_cast<const std::byte*>(data), operation});
}

DPTK_INLINE bool TcpConnection::flush() {
    constexpr std::size_t most_parts = 16;
    while (!queue_.empty()) {
        std::array<iovec, most_parts> parts;
        std::size_t count = 0;
        std::size_t skipped = sent_;
        std::size_t bytes = 0;
        for (const Output& output : queue_) {
            if (count + 2 > most_parts) break;
            const auto add = [&](const void* begin, std::size_t size) {
                const std::size_t done = std::min(skipped, size);
                skipped -= done;
                if (done == size) return;
                parts[count++] = {static_cast<char*>(const_cast<void*>(begin)) + done, size - done};
                bytes += size - done;
            };
            add(&output.header, sizeof output.header);
            add(output.data, output.data_bytes());
        }
        msghdr message{};
        message.msg_iov = parts.data();
        message.msg_iovlen = count;
        const ssize_t sent = ::sendmsg(socket_.number(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
        if (sent < 0) return end(errno);
        advance(static_cast<std::size_t>(sent));
        if (static_cast<std::size_t>(sent) < bytes) return true;
    }
    return true;
}

DPTK_INLINE bool TcpConnection::receive(std::span<std::byte> workspace, TcpReader& reader) {
    constexpr std::size_t most = std::size_t{4} << 20;  // then other connections have their turn
    constexpr std::size_t large = std::size_t{32} << 10;
    has_received_ = false;
    for (std::size_t total = 0; total < most && !is_invalid_;) {
        std::array<iovec, 2> parts;
        std::size_t count = 0;
        const std::size_t direct = target_ != nullptr ? data_left_ : 0;
        if (direct != 0) parts[count++] = {target_, direct};
        // Reads nothing beyond large data: the caller may then have a place for the next message.
        const std::size_t beyond = direct < large ? workspace.size() : 0;
        if (beyond != 0) parts[count++] = {workspace.data(), beyond};
        const ssize_t received = ::readv(socket_.number(), parts.data(), static_cast<int>(count));
        if (received < 0 && errno == EINTR) continue;
        if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
        if (received <= 0) return end(received == 0 ? 0 : errno);
        const auto bytes = static_cast<std::size_t>(received);
        has_received_ = true;
        const std::size_t placed = std::min(bytes, direct);
        if (placed != 0) take_data(placed, reader);
        if (!parse(workspace.first(bytes - placed), reader)) return false;
        if (bytes < direct + beyond || beyond == 0) return true;
        total += bytes;
    }
    return !is_invalid_;
}

DPTK_INLINE void TcpConnection::abandon(const std::exception_ptr& error) noexcept {
    for (const Output& output : queue_) {
        if (output.operation != nullptr) output.operation->complete(error);
    }
    queue_.clear();
}

DPTK_INLINE void TcpConnection::advance(std::size_t bytes) {
    sent_ += bytes;
    while (!queue_.empty()) {
        const Output& first = queue_.front();
        const std::size_t size = sizeof first.header + first.data_bytes();
        if (sent_ < size) return;
        sent_ -= size;
        if (first.operation != nullptr) first.operation->complete();
        queue_.pop_front();
    }
}

DPTK_INLINE bool TcpConnection::parse(std::span<const std::byte> bytes, TcpReader& reader) {
    while (!bytes.empty()) {
        if (data_left_ != 0) {
            const std::size_t size = std::min(bytes.size(), data_left_);
            if (target_ != nullptr) std::memcpy(target_, bytes.data(), size);
            take_data(size, reader);
            bytes = bytes.subspan(size);
            continue;
        }
        const std::size_t size = std::min(bytes.size(), sizeof(TcpHeader) - header_arrived_);
        std::memcpy(header_bytes_.data() + header_arrived_, bytes.data(), size);
        header_arrived_ += size;
        bytes = bytes.subspan(size);
        if (header_arrived_ < sizeof(TcpHeader)) return true;
        header_arrived_ = 0;
        const std::optional<TcpHeader> header = parse_tcp_header(header_bytes_);
        if (!header) {
            is_invalid_ = true;
            problem_ = "received an invalid header";
            return false;
        }
        header_ = *header;
        data_left_ = has_data(header_) ? header_.bytes : 0;
        target_ = reader.begin(header_);
        if (data_left_ != 0) continue;
        target_ = nullptr;
        reader.end(header_);
    }
    return true;
}

DPTK_INLINE void TcpConnection::take_data(std::size_t bytes, TcpReader& reader) {
    data_left_ -= bytes;
    if (target_ != nullptr) target_ += bytes;
    if (data_left_ != 0) return;
    target_ = nullptr;
    reader.end(header_);
}

DPTK_INLINE bool TcpConnection::end(int error) {
    problem_ = error == 0 ? "closed by the other side" : errno_text(error);
    return false;
}

}  // namespace DPTK_NAMESPACE::detail
