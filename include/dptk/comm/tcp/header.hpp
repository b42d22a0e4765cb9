/// The headers of messages over TCP: the wire format between two ranks that have completed the handshake.
///
/// A message of up to max_early_bytes is sent at once, as a header of kind `message` and its data, as long as
/// the receiver has room for it. A larger one is announced by a `request`; once the receiver waits for it,
/// it sends a `grant`, and the data follows a header of kind `data`.
///
/// A rank that waits for long in a collective asks the rank that it waits for. If that rank is in another
/// call, the calls differ; if it has come to a later one, the message will not come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

enum class TcpKind : std::uint8_t {
    message = 1,  ///< A message; its data follows.
    request,      ///< A message that waits for a grant.
    grant,        ///< The receiver of the request `id` waits for its data.
    data,         ///< The data of the request `id` follows.
    credit,       ///< The receiver has room for further `bytes` of early messages.
    question,     ///< The sender waits for a message of this collective.
    answer,       ///< The receiver of the question has come to this later collective of the group.
    leave,        ///< The sender closes the group.
    goodbye,      ///< The sender closes the connection, and has sent everything.
};

/// The tag of all messages of collectives, which the program's messages cannot have.
inline constexpr std::int32_t collective_message = -2;

/// A header, as it is sent. All ranks of a job have the same byte order, which the handshake checks.
struct TcpHeader {
    std::uint64_t group = 0;  ///< The hash of the group's name.
    std::uint64_t bytes = 0;  ///< The size of the message.
    std::uint64_t id = 0;     ///< The number of the request.
    /// The collective to which the message belongs: its number in the group, its description in the form of
    /// a PackedCall, and the hash of what all ranks must agree on.
    std::uint64_t call_number = 0;
    std::uint64_t call_first = 0;
    std::uint64_t call_second = 0;
    std::uint64_t call_hash = 0;
    std::int32_t tag = 0;
    TcpKind kind = TcpKind::message;
    std::uint8_t reserved[3] = {};
};
static_assert(sizeof(TcpHeader) == 64);

/// Messages up to this size are sent without a grant.
inline constexpr std::size_t max_early_bytes = std::size_t{256} << 10;

/// How many bytes of early messages, with their headers, a rank stores for each other rank.
inline constexpr std::size_t early_credit = std::size_t{1} << 20;

/// Parses a received header. Returns nullopt if no rank sends such a header.
[[nodiscard]] std::optional<TcpHeader> parse_tcp_header(std::span<const std::byte, sizeof(TcpHeader)> bytes);

/// Returns whether data follows the header.
[[nodiscard]] constexpr bool has_data(const TcpHeader& header) noexcept {
    return (header.kind == TcpKind::message || header.kind == TcpKind::data) && header.bytes != 0;
}

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/tcp/header.ipp"
#endif
