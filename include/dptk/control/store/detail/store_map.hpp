/// The keys and values of a store and the operations on them, which all kinds of store share: without locks,
/// waiting or communication. Here stand the limits, and what errors say about keys.
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

/// What a key costs beside its bytes and those of its value, so that the number of keys is bounded, too.
inline constexpr std::size_t store_entry_overhead = 128;

/// The key as messages show it: in quotes, unprintable bytes as \x00, at most 100 of its bytes.
[[nodiscard]] std::string quoted_key(std::string_view key);

void check_store_key(std::string_view key);

void check_store_value(std::string_view key, std::string_view value);

/// `where` ends the sentence and is empty or begins with a blank: " in the store at node0:29500".
[[noreturn]] void throw_missing_keys(std::span<const std::string> missing, std::chrono::milliseconds timeout,
                                     std::string_view where = "");

class StoreMap {
  public:
    /// Null where there is none; valid until the map changes.
    [[nodiscard]] const std::string* find(std::string_view key) const;

    /// Throws ArgumentError beyond the limits.
    void set(std::string_view key, std::string_view value);

    /// See Store::add. Throws ArgumentError where the value is no integer or the sum is beyond
    /// 64 bits.
    std::int64_t add(std::string_view key, std::int64_t amount);

    /// See Store::compare_and_set.
    std::string compare_and_set(std::string_view key, std::string_view expected, std::string_view desired);

    /// Whether there was a value.
    bool erase(std::string_view key);

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
#include "dptk/core/error.hpp"
#endif
