/// What TcpStore and its server say to each other, as pure functions from and to bytes. Whatever arrives is
/// untrusted: sizes and counts are checked before anything is allocated for them.
///
/// Numbers are little-endian. A connection begins with a greeting each way, magic and frame, whose shape all
/// versions of dptk share; then requests and replies alternate, one frame each. A frame is the 32-bit size of
/// its body, and the body.
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

void append_integer(std::string& out, std::uint64_t number, std::size_t bytes);

void append_bytes(std::string& out, std::string_view bytes);

/// Takes a message apart. After bytes that are not there, all that is read is 0 or empty, and ok() is false.
class ByteReader {
  public:
    explicit ByteReader(std::string_view bytes) : left_(bytes) {}

    [[nodiscard]] std::uint64_t integer(std::size_t bytes);

    [[nodiscard]] std::uint8_t u8() { return static_cast<std::uint8_t>(integer(1)); }
    [[nodiscard]] std::uint32_t u32() { return static_cast<std::uint32_t>(integer(4)); }
    [[nodiscard]] std::int64_t i64() { return static_cast<std::int64_t>(integer(8)); }
    [[nodiscard]] std::string_view bytes();

    /// How many items of at least `bytes` each follow, or 0 and not ok() where more are announced than there
    /// is room for.
    [[nodiscard]] std::size_t count(std::size_t most, std::size_t bytes);

    [[nodiscard]] bool ok() const noexcept { return ok_; }
    [[nodiscard]] bool at_end() const noexcept { return left_.empty(); }

  private:
    [[nodiscard]] std::string_view take(std::size_t bytes);

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

[[nodiscard]] FrameView parse_frame(std::string_view received, std::size_t max_body);

/// Magic and frame. Malformed as soon as one byte of the magic is wrong.
[[nodiscard]] FrameView parse_greeting(std::string_view received);

[[nodiscard]] std::string greeting(std::string_view body);

[[nodiscard]] std::string encode(const StoreHello& hello);

/// Of another protocol number, only the number is read.
[[nodiscard]] std::optional<StoreHello> parse_hello(std::string_view body);

[[nodiscard]] std::string encode(const StoreHelloReply& reply);

[[nodiscard]] std::optional<StoreHelloReply> parse_hello_reply(std::string_view body);

[[nodiscard]] std::string encode(const StoreRequest& request);

/// The fields point into the body. Nothing where the body is no request.
[[nodiscard]] std::optional<StoreRequest> parse_request(std::string_view body);

[[nodiscard]] std::string encode(const StoreReply& reply);

/// The text points into the body. Nothing where the body is no reply.
[[nodiscard]] std::optional<StoreReply> parse_reply(std::string_view body);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/store/detail/store_protocol.ipp"
#include "dptk/core/error.hpp"
#endif
