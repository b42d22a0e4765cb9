/// A Store holds the few keys and values through which the processes of a job find each other and tell each
/// other about failures. Small values, few keys: it is no transport for data.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE {

/// How long dptk waits for other ranks unless told otherwise.
inline constexpr std::chrono::milliseconds default_timeout = std::chrono::minutes(30);

/// How long a rank may be silent. It is silent when its process is stopped or its host cannot be reached; one
/// that computes or waits is not.
inline constexpr std::chrono::milliseconds default_heartbeat_timeout = std::chrono::seconds(60);

/// What every store keeps to; longer keys and values are an ArgumentError.
inline constexpr std::size_t max_store_key_bytes = 1024;
/// The longest value that a store takes.
inline constexpr std::size_t max_store_value_bytes = std::size_t{1} << 20;

/// Calls may come from several threads, and are carried out one at a time: a get that waits holds the others
/// up, so that a thread that waits should work on its own clone(). No call is collective. All throw
/// PeerLostError when the store is gone, and ArgumentError for a key (1 to 1024 bytes) or value (up to 1 MiB)
/// beyond the limits.
class Store {
  public:
    Store() = default;
    Store(const Store&) = delete;
    Store& operator=(const Store&) = delete;
    virtual ~Store() = default;

    /// Writes the value, over an older one.
    virtual void set(std::string_view key, std::string_view value) = 0;

    /// The value, as soon as there is one. Blocks for at most `timeout`, then throws TimeoutError with the
    /// key.
    [[nodiscard]] virtual std::string get(std::string_view key, std::chrono::milliseconds timeout) = 0;

    /// The value, or nothing. Does not wait for a value.
    [[nodiscard]] virtual std::optional<std::string> find(std::string_view key) = 0;

    /// Adds to the decimal integer in the key, which is 0 where there is none, and returns the sum. Atomic.
    /// Throws ArgumentError where the value is no integer, or the sum is beyond 64 bits.
    virtual std::int64_t add(std::string_view key, std::int64_t amount) = 0;

    /// Writes `desired` where the value is `expected`; an empty `expected` stands for no value, too. Returns
    /// the value as it is afterwards: `desired` where it was written, or what was found instead (empty for
    /// none). Atomic.
    virtual std::string compare_and_set(std::string_view key, std::string_view expected,
                                        std::string_view desired) = 0;

    /// Blocks until all keys have a value, for at most `timeout`; then throws TimeoutError with those that
    /// have none.
    virtual void wait(std::span<const std::string> keys, std::chrono::milliseconds timeout) = 0;

    /// Returns whether there was a value.
    virtual bool erase(std::string_view key) = 0;

    /// Asks the store to carry out compare_and_set(key, "", value) when this client vanishes: when its
    /// connection ends before the client's destructor has run. Replaces an earlier one; an empty key takes it
    /// back. A store that cannot notice lost clients does nothing.
    virtual void set_last_will(std::string_view key, std::string_view value) = 0;

    /// Another client of the same store, for another thread.
    [[nodiscard]] virtual std::shared_ptr<Store> clone() = 0;
};

}  // namespace DPTK_NAMESPACE
