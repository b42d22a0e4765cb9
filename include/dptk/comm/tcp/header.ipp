#pragma once

#include "dptk/comm/tcp/header.hpp"

#include <cstring>

#include "dptk/comm/collective.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::optional<TcpHeader> parse_tcp_header(std::span<const std::byte, sizeof(TcpHeader)> bytes) {
    constexpr std::uint64_t address_space = std::uint64_t{1} << 48;
    TcpHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    const bool has_tag = header.tag == collective_message || header.tag >= 0;
    switch (header.kind) {
        case TcpKind::message:
            if (has_tag && header.bytes <= max_early_bytes) return header;
            break;
        case TcpKind::request:
            if (has_tag && header.bytes <= address_space) return header;
            break;
        case TcpKind::data:
            if (header.bytes <= address_space) return header;
            break;
        case TcpKind::credit:
            if (header.bytes <= early_credit) return header;
            break;
        case TcpKind::grant:
        case TcpKind::question:
        case TcpKind::answer:
        case TcpKind::leave:
        case TcpKind::goodbye: return header;
    }
    return std::nullopt;
}

}  // namespace DPTK_NAMESPACE::detail
