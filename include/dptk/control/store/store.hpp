/// Store: the key-value store through which the processes of a job find each other and report failures, as
/// in torch.distributed. It is intended for few keys and small values, not for the transport of data.
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

/// The default time limit of calls that wait for other ranks.
inline constexpr std::chrono::milliseconds default_timeout = std::chrono::minutes(30);

/// The default heartbeat timeout: how long a rank may send no heartbeat before it is considered lost. A
/// rank sends no heartbeat if its process is stopped or its host is unreachable; a rank that computes or
/// waits sends heartbeats.
inline constexpr std::chrono::milliseconds default_heartbeat_timeout = std::chrono::seconds(60);

/// The longest key that a store accepts, in bytes.
inline constexpr std::size_t max_store_key_bytes = 1024;
/// The longest value that a store accepts, in bytes.
inline constexpr std::size_t max_store_value_bytes = std::size_t{1} << 20;

/// The numeric addresses of the two ends of a client's connection to its store; empty without a connection.
struct StoreConnection {
    std::string own = {};     ///< The address of this process.
    std::string server = {};  ///< The address of the process that serves the store, as seen from here.

    friend bool operator==(const StoreConnection&, const StoreConnection&) = default;
};

/// Interface of key-value stores. Several threads may call a store, but calls are executed one at a time: a
/// get() that waits blocks the calls of other threads, so a thread that waits should use its own clone().
/// No call is collective. All calls throw PeerLostError if the store is lost, and ArgumentError if a key is
/// not 1 to 1024 bytes long or a value is longer than 1 MiB.
class Store {
  public:
    Store() = default;
    Store(const Store&) = delete;
    Store& operator=(const Store&) = delete;
    virtual ~Store() = default;

    /// Sets the value of the key, replacing an older value.
    virtual void set(std::string_view key, std::string_view value) = 0;

    /// Waits for the key to have a value, and returns it. Blocks for at most `timeout`, then throws
    /// TimeoutError that names the key.
    [[nodiscard]] virtual std::string get(std::string_view key, std::chrono::milliseconds timeout) = 0;

    /// Returns the value, or nullopt if the key has no value. Does not wait for a value.
    [[nodiscard]] virtual std::optional<std::string> find(std::string_view key) = 0;

    /// Adds `amount` to the key's value, a decimal integer, and returns the sum. A key without a value counts
    /// as 0. Atomic. Throws ArgumentError if the value is not an integer, or if the sum exceeds 64 bits.
    virtual std::int64_t add(std::string_view key, std::int64_t amount) = 0;

    /// Sets the value to `desired` if it is `expected`. An empty `expected` also matches a key without a
    /// value. Returns the value after the call: `desired` if it was set, otherwise the existing value, or
    /// an empty string if the key has no value. Atomic.
    virtual std::string compare_and_set(std::string_view key, std::string_view expected,
                                        std::string_view desired) = 0;

    /// Blocks until all keys have a value, for at most `timeout`; then throws TimeoutError that names the
    /// keys without a value.
    virtual void wait(std::span<const std::string> keys, std::chrono::milliseconds timeout) = 0;

    /// Removes the key. Returns whether it had a value.
    virtual bool erase(std::string_view key) = 0;

    /// Requests that the store executes compare_and_set(key, "", value) if this client is lost, that is, if
    /// its connection ends before the client's destructor has run. Replaces an earlier request; an empty
    /// key cancels it. A store that cannot detect lost clients does nothing.
    virtual void set_last_will(std::string_view key, std::string_view value) = 0;

    /// Returns another client of the same store, for use by another thread.
    [[nodiscard]] virtual std::shared_ptr<Store> clone() = 0;

    /// Returns the addresses of this client's connection, at which the ranks of several hosts reach each
    /// other.
    [[nodiscard]] virtual StoreConnection connection() { return {}; }
};

}  // namespace DPTK_NAMESPACE
