#pragma once

#include "dptk/control/store/detail/store_protocol.hpp"

#include <algorithm>

#include "dptk/control/store/store.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void append_integer(std::string& out, std::uint64_t number, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) out += static_cast<char>((number >> (8 * i)) & 0xff);
}

DPTK_INLINE void append_bytes(std::string& out, std::string_view bytes) {
    append_integer(out, bytes.size(), 4);
    out += bytes;
}

DPTK_INLINE std::uint64_t ByteReader::integer(std::size_t bytes) {
    const std::string_view piece = take(bytes);
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < piece.size(); ++i) {
        number |= static_cast<std::uint64_t>(static_cast<unsigned char>(piece[i])) << (8 * i);
    }
    return number;
}

DPTK_INLINE std::string_view ByteReader::bytes() {
    return take(u32());
}

DPTK_INLINE std::size_t ByteReader::count(std::size_t most, std::size_t bytes) {
    const std::size_t announced = u32();
    if (announced <= most && announced * bytes <= left_.size()) return announced;
    ok_ = false;
    return 0;
}

DPTK_INLINE std::string_view ByteReader::take(std::size_t bytes) {
    if (!ok_ || bytes > left_.size()) {
        ok_ = false;
        return {};
    }
    const std::string_view piece = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return piece;
}

DPTK_INLINE FrameView parse_frame(std::string_view received, std::size_t max_body) {
    constexpr std::size_t head = 4;
    if (received.size() < head) return {};
    const std::size_t size = ByteReader(received).u32();
    if (size > max_body) return {ParseState::malformed, {}, 0};
    if (received.size() - head < size) return {};
    return {ParseState::complete, received.substr(head, size), head + size};
}

DPTK_INLINE FrameView parse_greeting(std::string_view received) {
    const std::string_view magic = received.substr(0, store_magic.size());
    if (magic != store_magic.substr(0, magic.size())) return {ParseState::malformed, {}, 0};
    if (magic.size() < store_magic.size()) return {};
    FrameView frame = parse_frame(received.substr(magic.size()), max_greeting_bytes);
    if (frame.state == ParseState::complete) frame.bytes += magic.size();
    return frame;
}

DPTK_INLINE std::string greeting(std::string_view body) {
    std::string out(store_magic);
    append_bytes(out, body);
    return out;
}

DPTK_INLINE std::string encode(const StoreHello& hello) {
    std::string body;
    append_integer(body, hello.protocol, 4);
    append_bytes(body, hello.token);
    append_integer(body, hello.client, 8);
    append_integer(body, hello.reconnects ? 1 : 0, 1);
    return greeting(body);
}

DPTK_INLINE std::optional<StoreHello> parse_hello(std::string_view body) {
    ByteReader reader(body);
    StoreHello hello{.protocol = reader.u32()};
    if (!reader.ok()) return std::nullopt;
    if (hello.protocol != store_protocol_number) return hello;
    hello.token = reader.bytes();
    hello.client = reader.integer(8);
    hello.reconnects = reader.u8() != 0;
    if (!reader.ok() || !reader.at_end() || hello.token.size() > max_store_token_bytes) return std::nullopt;
    return hello;
}

DPTK_INLINE std::string encode(const StoreHelloReply& reply) {
    std::string body;
    append_integer(body, reply.protocol, 4);
    append_integer(body, static_cast<std::uint64_t>(reply.verdict), 1);
    append_bytes(body, reply.reason);
    return greeting(body);
}

DPTK_INLINE std::optional<StoreHelloReply> parse_hello_reply(std::string_view body) {
    ByteReader reader(body);
    StoreHelloReply reply;
    reply.protocol = reader.u32();
    const std::uint8_t verdict = reader.u8();
    reply.reason = reader.bytes();
    if (!reader.ok() || verdict > static_cast<std::uint8_t>(Verdict::busy)) return std::nullopt;
    reply.verdict = static_cast<Verdict>(verdict);
    return reply;
}

DPTK_INLINE std::string encode(const StoreRequest& request) {
    std::string body;
    append_integer(body, static_cast<std::uint64_t>(request.operation), 1);
    append_integer(body, static_cast<std::uint64_t>(request.number), 8);
    append_integer(body, request.sequence, 4);
    append_integer(body, request.fields.size(), 4);
    for (const std::string_view field : request.fields) append_bytes(body, field);
    std::string out;
    append_bytes(out, body);
    return out;
}

[[nodiscard]] DPTK_INLINE bool is_key(std::string_view field) {
    return !field.empty() && field.size() <= max_store_key_bytes;
}

[[nodiscard]] DPTK_INLINE bool is_value(std::string_view field) {
    return field.size() <= max_store_value_bytes;
}

/// Returns whether the number and the sizes of the fields are valid for the operation.
[[nodiscard]] DPTK_INLINE bool is_valid(const StoreRequest& request) {
    const std::vector<std::string_view>& fields = request.fields;
    switch (request.operation) {
        case StoreOperation::set: return fields.size() == 2 && is_key(fields[0]) && is_value(fields[1]);
        case StoreOperation::get:
        case StoreOperation::find:
        case StoreOperation::add:
        case StoreOperation::erase: return fields.size() == 1 && is_key(fields[0]);
        case StoreOperation::compare_and_set:
            return fields.size() == 3 && is_key(fields[0]) && is_value(fields[1]) && is_value(fields[2]);
        case StoreOperation::wait: return std::all_of(fields.begin(), fields.end(), is_key);
        case StoreOperation::last_will:
            return fields.size() == 2 && (fields[0].empty() || is_key(fields[0])) && is_value(fields[1]);
        case StoreOperation::goodbye: return fields.empty();
    }
    return false;
}

DPTK_INLINE std::optional<StoreRequest> parse_request(std::string_view body) {
    constexpr std::size_t smallest_field = 4;
    ByteReader reader(body);
    StoreRequest request;
    request.operation = static_cast<StoreOperation>(reader.u8());
    request.number = reader.i64();
    request.sequence = reader.u32();
    const std::size_t fields = reader.count(max_request_fields, smallest_field);
    request.fields.reserve(fields);
    for (std::size_t i = 0; i < fields; ++i) request.fields.push_back(reader.bytes());
    if (!reader.ok() || !reader.at_end() || !is_valid(request)) return std::nullopt;
    return request;
}

DPTK_INLINE std::string encode(const StoreReply& reply) {
    std::string body;
    append_integer(body, static_cast<std::uint64_t>(reply.status), 1);
    append_integer(body, static_cast<std::uint64_t>(reply.number), 8);
    append_bytes(body, reply.text);
    append_integer(body, reply.missing.size(), 4);
    for (const std::uint32_t index : reply.missing) append_integer(body, index, 4);
    std::string out;
    append_bytes(out, body);
    return out;
}

DPTK_INLINE std::optional<StoreReply> parse_reply(std::string_view body) {
    ByteReader reader(body);
    StoreReply reply;
    const std::uint8_t status = reader.u8();
    reply.status = static_cast<StoreStatus>(status);
    reply.number = reader.i64();
    reply.text = reader.bytes();
    const std::size_t missing = reader.count(max_request_fields, 4);
    reply.missing.reserve(missing);
    for (std::size_t i = 0; i < missing; ++i) reply.missing.push_back(reader.u32());
    const bool known = status <= static_cast<std::uint8_t>(StoreStatus::rejected);
    if (!known || !reader.ok() || !reader.at_end()) return std::nullopt;
    return reply;
}

}  // namespace DPTK_NAMESPACE::detail
