/// Store map: the keys and values of a store and the operations on them, shared by all kinds of store. It
/// has no locks, does not wait, and does not communicate. This header also defines the limits of keys and
/// values, and the errors about them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Bytes that count for each entry in addition to its key and value, so that the number of keys is bounded.
inline constexpr std::size_t store_entry_overhead = 128;

/// Formats a key for messages: in quotes, with unprintable bytes as \x00, and truncated after 100 bytes.
[[nodiscard]] std::string quoted_key(std::string_view key);

/// Throws ArgumentError if the key is empty or too long.
void check_store_key(std::string_view key);

/// Throws ArgumentError if the value is too long.
void check_store_value(std::string_view key, std::string_view value);

/// Throws TimeoutError that names the missing keys. `where` is appended to the message; it is empty or
/// begins with a space: " in the store at node0:29500".
[[noreturn]] void throw_missing_keys(std::span<const std::string> missing, std::chrono::milliseconds timeout,
                                     std::string_view where = "");

class StoreMap {
  public:
    /// Returns the value, or null. The pointer is valid until the map changes.
    [[nodiscard]] const std::string* find(std::string_view key) const;

    /// Sets a value. Throws ArgumentError if a limit is exceeded.
    void set(std::string_view key, std::string_view value);

    /// See Store::add.
    std::int64_t add(std::string_view key, std::int64_t amount);

    /// See Store::compare_and_set.
    std::string compare_and_set(std::string_view key, std::string_view expected, std::string_view desired);

    /// Removes a value. Returns whether it existed.
    bool erase(std::string_view key);

    /// Removes the values of all keys that begin with `prefix`, except of those that continue with one of
    /// `kept`.
    void erase_all(std::string_view prefix, std::span<const std::string_view> kept);

  private:
    [[nodiscard]] static std::size_t cost(std::string_view key, std::string_view value);

    [[nodiscard]] static std::int64_t integer(std::string_view key, std::string_view value);

    [[noreturn]] static void throw_full(std::string_view key);

    std::map<std::string, std::string, std::less<>> values_;
    std::size_t bytes_ = 0;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/store/detail/store_map.ipp"
#endif
