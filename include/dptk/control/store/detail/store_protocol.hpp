/// Store protocol: the wire format between TcpStore and TcpStoreServer, as pure functions that serialize
/// and parse messages. Received bytes are untrusted: sizes and counts are checked before memory is
/// allocated for them.
///
/// Numbers are little-endian. A connection begins with a greeting in each direction: a magic word and a
/// frame. All versions of dptk share the format of the greeting. Then requests and replies alternate, one
/// frame each. A frame is the 32-bit size of its body, followed by the body.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

inline constexpr std::string_view store_magic = "dptkstor";

/// Must be increased whenever the format of requests or replies changes.
inline constexpr std::uint32_t store_protocol_number = 2;

inline constexpr std::size_t max_store_token_bytes = 256;
inline constexpr std::size_t max_greeting_bytes = 1024;
inline constexpr std::size_t max_request_fields = 1024;
inline constexpr std::size_t max_request_bytes = (std::size_t{2} << 20) + 4096;
inline constexpr std::size_t max_reply_bytes = (std::size_t{1} << 20) + 8192;

enum class Verdict : std::uint8_t { welcome = 0, refused = 1, busy = 2 };

struct StoreHello {
    std::uint32_t protocol = store_protocol_number;
    std::string_view token = {};
    /// The random number by which the server recognizes the client after a reconnect. 0 if the client never
    /// reconnects.
    std::uint64_t client = 0;
    /// Whether the client's earlier connection was reset, and the server must still know the client.
    bool reconnects = false;
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
    last_will,        ///< key, which may be empty, value; number: 1 if a reset does not count as an end
    goodbye,          ///< no fields; the server sends no reply
};

/// Whether it does no harm to carry out a request twice.
[[nodiscard]] constexpr bool is_repeatable(StoreOperation operation) noexcept {
    return operation == StoreOperation::get || operation == StoreOperation::find ||
           operation == StoreOperation::wait || operation == StoreOperation::last_will;
}

struct StoreRequest {
    StoreOperation operation = StoreOperation::goodbye;
    std::int64_t number = 0;
    std::vector<std::string_view> fields = {};
    /// The number of the client's request. If a client sends a request that is not repeatable again after a
    /// reset, the server does not repeat it, but sends the same reply. 0 if the client never reconnects.
    std::uint32_t sequence = 0;
};

enum class StoreStatus : std::uint8_t {
    done = 0,
    absent = 1,    ///< find, erase: the key has no value
    missing = 2,   ///< get, wait: the timeout has passed
    rejected = 3,  ///< the operation threw an ArgumentError with this text
};

struct StoreReply {
    StoreStatus status = StoreStatus::done;
    std::int64_t number = 0;
    std::string_view text = {};
    /// The indices of the request's keys that have no value.
    std::vector<std::uint32_t> missing = {};
};

void append_integer(std::string& out, std::uint64_t number, std::size_t bytes);

void append_bytes(std::string& out, std::string_view bytes);

/// Parses a message. A read beyond the end makes ok() false; it and all later reads return 0 or an empty
/// result.
class ByteReader {
  public:
    explicit ByteReader(std::string_view bytes) : left_(bytes) {}

    [[nodiscard]] std::uint64_t integer(std::size_t bytes);

    [[nodiscard]] std::uint8_t u8() { return static_cast<std::uint8_t>(integer(1)); }
    [[nodiscard]] std::uint32_t u32() { return static_cast<std::uint32_t>(integer(4)); }
    [[nodiscard]] std::int64_t i64() { return static_cast<std::int64_t>(integer(8)); }
    [[nodiscard]] std::string_view bytes();

    /// Reads the number of items that follow. Each item has at least `bytes` bytes. Returns 0 and makes ok()
    /// false if the number exceeds `most`, or if the remaining bytes cannot contain so many items.
    [[nodiscard]] std::size_t count(std::size_t most, std::size_t bytes);

    [[nodiscard]] bool ok() const noexcept { return ok_; }
    [[nodiscard]] bool at_end() const noexcept { return left_.empty(); }

  private:
    [[nodiscard]] std::string_view take(std::size_t bytes);

    std::string_view left_;
    bool ok_ = true;
};

enum class ParseState { incomplete, complete, malformed };

/// The frame at the beginning of the bytes received so far.
struct FrameView {
    ParseState state = ParseState::incomplete;
    std::string_view body;
    /// The size of the whole frame.
    std::size_t bytes = 0;
};

[[nodiscard]] FrameView parse_frame(std::string_view received, std::size_t max_body);

/// Parses a greeting: magic word and frame. Malformed as soon as one byte of the magic word is wrong.
[[nodiscard]] FrameView parse_greeting(std::string_view received);

[[nodiscard]] std::string greeting(std::string_view body);

[[nodiscard]] std::string encode(const StoreHello& hello);

/// Parses the client's greeting. If the protocol number differs from this version's, reads only that
/// number.
[[nodiscard]] std::optional<StoreHello> parse_hello(std::string_view body);

[[nodiscard]] std::string encode(const StoreHelloReply& reply);

[[nodiscard]] std::optional<StoreHelloReply> parse_hello_reply(std::string_view body);

[[nodiscard]] std::string encode(const StoreRequest& request);

/// Parses a request, whose fields refer to `body`. Returns nullopt if it is not a valid request.
[[nodiscard]] std::optional<StoreRequest> parse_request(std::string_view body);

[[nodiscard]] std::string encode(const StoreReply& reply);

/// Parses a reply, whose text refers to `body`. Returns nullopt if it is not a valid reply.
[[nodiscard]] std::optional<StoreReply> parse_reply(std::string_view body);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/store/detail/store_protocol.ipp"
#endif
