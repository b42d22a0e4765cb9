/// What TcpStore and its server say to each other, as pure functions from and to bytes. Whatever arrives is
/// untrusted: sizes and counts are checked before anything is allocated for them.
///
/// Numbers are little-endian. A connection begins with a greeting each way, magic and frame, whose shape all
/// versions of dptk share; then requests and replies alternate, one frame each. A frame is the 32-bit size of
/// its body, and the body.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/control/store.hpp"

namespace dptk::detail {

inline constexpr std::string_view store_magic = "dptkstor";

/// To be raised whenever requests or replies change.
inline constexpr std::uint32_t store_protocol_number = 1;

inline constexpr std::size_t max_store_token_bytes = 256;
inline constexpr std::size_t max_greeting_bytes = 1024;
inline constexpr std::size_t max_request_fields = 1024;
inline constexpr std::size_t max_request_bytes = (std::size_t{2} << 20) + 4096;
inline constexpr std::size_t max_reply_bytes = (std::size_t{1} << 20) + 8192;

enum class Verdict : std::uint8_t { welcome = 0, refused = 1, busy = 2 };

struct StoreHello {
    std::uint32_t protocol = store_protocol_number;
    std::string_view token;
};

struct StoreHelloReply {
    std::uint32_t protocol = store_protocol_number;
    Verdict verdict = Verdict::welcome;
    std::string_view reason;
};

enum class StoreOperation : std::uint8_t {
    set = 1,          ///< key, value
    get,              ///< key; number: timeout in milliseconds
    find,             ///< key
    add,              ///< key; number: amount
    compare_and_set,  ///< key, expected, desired
    wait,             ///< keys; number: timeout in milliseconds
    erase,            ///< key
    last_will,        ///< key, which may be empty, value
    goodbye,          ///< has no reply
};

struct StoreRequest {
    StoreOperation operation = StoreOperation::goodbye;
    std::int64_t number = 0;
    std::vector<std::string_view> fields;
};

enum class StoreStatus : std::uint8_t {
    done = 0,
    absent = 1,    ///< find, erase: there was no value
    missing = 2,   ///< get, wait: the timeout has passed
    rejected = 3,  ///< an ArgumentError with this text
};

struct StoreReply {
    StoreStatus status = StoreStatus::done;
    std::int64_t number = 0;
    std::string_view text = {};
    /// Of the request's keys, those without a value.
    std::vector<std::uint32_t> missing = {};
};

inline void append_integer(std::string& out, std::uint64_t number, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) out += static_cast<char>((number >> (8 * i)) & 0xff);
}

inline void append_bytes(std::string& out, std::string_view bytes) {
    append_integer(out, bytes.size(), 4);
    out += bytes;
}

/// Takes a message apart. After bytes that are not there, all that is read is 0 or empty, and ok() is false.
class ByteReader {
  public:
    explicit ByteReader(std::string_view bytes) : left_(bytes) {}

    [[nodiscard]] std::uint64_t integer(std::size_t bytes) {
        const std::string_view piece = take(bytes);
        std::uint64_t number = 0;
        for (std::size_t i = 0; i < piece.size(); ++i) {
            number |= static_cast<std::uint64_t>(static_cast<unsigned char>(piece[i])) << (8 * i);
        }
        return number;
    }

    [[nodiscard]] std::uint8_t u8() { return static_cast<std::uint8_t>(integer(1)); }
    [[nodiscard]] std::uint32_t u32() { return static_cast<std::uint32_t>(integer(4)); }
    [[nodiscard]] std::int64_t i64() { return static_cast<std::int64_t>(integer(8)); }
    [[nodiscard]] std::string_view bytes() { return take(u32()); }

    /// How many items of at least `bytes` each follow, or 0 and not ok() where more are announced than there
    /// is room for.
    [[nodiscard]] std::size_t count(std::size_t most, std::size_t bytes) {
        const std::size_t announced = u32();
        if (announced <= most && announced * bytes <= left_.size()) return announced;
        ok_ = false;
        return 0;
    }

    [[nodiscard]] bool ok() const noexcept { return ok_; }
    [[nodiscard]] bool at_end() const noexcept { return left_.empty(); }

  private:
    [[nodiscard]] std::string_view take(std::size_t bytes) {
        if (!ok_ || bytes > left_.size()) {
            ok_ = false;
            return {};
        }
        const std::string_view piece = left_.substr(0, bytes);
        left_.remove_prefix(bytes);
        return piece;
    }

    std::string_view left_;
    bool ok_ = true;
};

enum class ParseState { incomplete, complete, malformed };

/// What stands at the beginning of the bytes received so far.
struct FrameView {
    ParseState state = ParseState::incomplete;
    std::string_view body;
    /// Of the whole frame.
    std::size_t bytes = 0;
};

[[nodiscard]] inline FrameView parse_frame(std::string_view received, std::size_t max_body) {
    constexpr std::size_t head = 4;
    if (received.size() < head) return {};
    const std::size_t size = ByteReader(received).u32();
    if (size > max_body) return {ParseState::malformed, {}, 0};
    if (received.size() - head < size) return {};
    return {ParseState::complete, received.substr(head, size), head + size};
}

/// Magic and frame. Malformed as soon as one byte of the magic is wrong.
[[nodiscard]] inline FrameView parse_greeting(std::string_view received) {
    const std::string_view magic = received.substr(0, store_magic.size());
    if (magic != store_magic.substr(0, magic.size())) return {ParseState::malformed, {}, 0};
    if (magic.size() < store_magic.size()) return {};
    FrameView frame = parse_frame(received.substr(magic.size()), max_greeting_bytes);
    if (frame.state == ParseState::complete) frame.bytes += magic.size();
    return frame;
}

[[nodiscard]] inline std::string greeting(std::string_view body) {
    std::string out(store_magic);
    append_bytes(out, body);
    return out;
}

[[nodiscard]] inline std::string encode(const StoreHello& hello) {
    std::string body;
    append_integer(body, hello.protocol, 4);
    append_bytes(body, hello.token);
    return greeting(body);
}

/// Of another protocol number, only the number is read.
[[nodiscard]] inline std::optional<StoreHello> parse_hello(std::string_view body) {
    ByteReader reader(body);
    StoreHello hello{reader.u32(), {}};
    if (!reader.ok()) return std::nullopt;
    if (hello.protocol != store_protocol_number) return hello;
    hello.token = reader.bytes();
    if (!reader.ok() || !reader.at_end() || hello.token.size() > max_store_token_bytes) return std::nullopt;
    return hello;
}

[[nodiscard]] inline std::string encode(const StoreHelloReply& reply) {
    std::string body;
    append_integer(body, reply.protocol, 4);
    append_integer(body, static_cast<std::uint64_t>(reply.verdict), 1);
    append_bytes(body, reply.reason);
    return greeting(body);
}

[[nodiscard]] inline std::optional<StoreHelloReply> parse_hello_reply(std::string_view body) {
    ByteReader reader(body);
    StoreHelloReply reply;
    reply.protocol = reader.u32();
    const std::uint8_t verdict = reader.u8();
    reply.reason = reader.bytes();
    if (!reader.ok() || verdict > static_cast<std::uint8_t>(Verdict::busy)) return std::nullopt;
    reply.verdict = static_cast<Verdict>(verdict);
    return reply;
}

[[nodiscard]] inline std::string encode(const StoreRequest& request) {
    std::string body;
    append_integer(body, static_cast<std::uint64_t>(request.operation), 1);
    append_integer(body, static_cast<std::uint64_t>(request.number), 8);
    append_integer(body, request.fields.size(), 4);
    for (const std::string_view field : request.fields) append_bytes(body, field);
    std::string out;
    append_bytes(out, body);
    return out;
}

[[nodiscard]] inline bool is_key(std::string_view field) {
    return !field.empty() && field.size() <= max_store_key_bytes;
}

[[nodiscard]] inline bool is_value(std::string_view field) {
    return field.size() <= max_store_value_bytes;
}

/// Whether the fields are as many and as large as the operation allows.
[[nodiscard]] inline bool is_valid(const StoreRequest& request) {
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

/// The fields point into the body. Nothing where the body is no request.
[[nodiscard]] inline std::optional<StoreRequest> parse_request(std::string_view body) {
    constexpr std::size_t smallest_field = 4;
    ByteReader reader(body);
    StoreRequest request;
    request.operation = static_cast<StoreOperation>(reader.u8());
    request.number = reader.i64();
    const std::size_t fields = reader.count(max_request_fields, smallest_field);
    request.fields.reserve(fields);
    for (std::size_t i = 0; i < fields; ++i) request.fields.push_back(reader.bytes());
    if (!reader.ok() || !reader.at_end() || !is_valid(request)) return std::nullopt;
    return request;
}

[[nodiscard]] inline std::string encode(const StoreReply& reply) {
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

/// The text points into the body. Nothing where the body is no reply.
[[nodiscard]] inline std::optional<StoreReply> parse_reply(std::string_view body) {
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

}  // namespace dptk::detail
