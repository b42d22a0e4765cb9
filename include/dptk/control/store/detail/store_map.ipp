#pragma once

#include "dptk/control/store/detail/store_map.hpp"

#include <charconv>
#include <system_error>

#include "dptk/control/process/deadline.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// The largest total size of the keys and values of one store.
inline constexpr std::size_t max_store_bytes = std::size_t{64} << 20;

DPTK_INLINE std::string quoted_key(std::string_view key) {
    constexpr std::size_t longest = 100;
    constexpr std::string_view digits = "0123456789abcdef";
    std::string out = "\"";
    for (const char character : key.substr(0, longest)) {
        const auto byte = static_cast<unsigned char>(character);
        if (byte >= 0x20 && byte < 0x7f) {
            out += character;
        } else {
            out += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
        }
    }
    return out + (key.size() > longest ? "...\"" : "\"");
}

DPTK_INLINE void check_store_key(std::string_view key) {
    if (key.empty()) throw ArgumentError("the key of a store is empty: expected 1 to 1024 bytes");
    if (key.size() <= max_store_key_bytes) return;
    throw ArgumentError(text("the store's key ", quoted_key(key), " has ", key.size(),
                             " bytes: expected at most ", max_store_key_bytes));
}

DPTK_INLINE void check_store_value(std::string_view key, std::string_view value) {
    if (value.size() <= max_store_value_bytes) return;
    throw ArgumentError(text("the store's value for key ", quoted_key(key), " has ", value.size(),
                             " bytes: expected at most ", max_store_value_bytes));
}

DPTK_INLINE void throw_missing_keys(std::span<const std::string> missing, std::chrono::milliseconds timeout,
                                    std::string_view where) {
    constexpr std::size_t most_named = 8;
    std::string names;
    for (std::size_t i = 0; i < missing.size() && i < most_named; ++i) {
        if (i != 0) names += ", ";
        names += quoted_key(missing[i]);
    }
    if (missing.size() > most_named) names += text(" and ", missing.size() - most_named, " more");
    throw TimeoutError(text("no value for key", missing.size() == 1 ? " " : "s ", names, " within ",
                            duration_text(timeout), where));
}

DPTK_INLINE const std::string* StoreMap::find(std::string_view key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
}

DPTK_INLINE void StoreMap::set(std::string_view key, std::string_view value) {
    check_store_key(key);
    check_store_value(key, value);
    const auto found = values_.find(key);
    const std::size_t before = found == values_.end() ? 0 : cost(key, found->second);
    const std::size_t after = bytes_ - before + cost(key, value);
    if (after > max_store_bytes && cost(key, value) > before) throw_full(key);
    if (found == values_.end()) {
        values_.emplace(key, value);
    } else {
        found->second = value;
    }
    bytes_ = after;
}

DPTK_INLINE std::int64_t StoreMap::add(std::string_view key, std::int64_t amount) {
    std::int64_t number = 0;
    if (const std::string* value = find(key)) number = integer(key, *value);
    std::int64_t sum = 0;
    if (__builtin_add_overflow(number, amount, &sum)) {
        throw ArgumentError(text("cannot add ", amount, " to the store's key ", quoted_key(key),
                                 ", whose value is ", number,
                                 ": the sum does not fit into a signed 64-bit integer"));
    }
    set(key, std::to_string(sum));
    return sum;
}

DPTK_INLINE std::string StoreMap::compare_and_set(std::string_view key, std::string_view expected,
                                                  std::string_view desired) {
    const std::string* value = find(key);
    const std::string_view found = value == nullptr ? std::string_view() : std::string_view(*value);
    if (found != expected) return std::string(found);
    set(key, desired);
    return std::string(desired);
}

DPTK_INLINE bool StoreMap::erase(std::string_view key) {
    check_store_key(key);
    const auto found = values_.find(key);
    if (found == values_.end()) return false;
    bytes_ -= cost(key, found->second);
    values_.erase(found);
    return true;
}

DPTK_INLINE void StoreMap::erase_all(std::string_view prefix, std::span<const std::string_view> kept) {
    for (auto line = values_.lower_bound(prefix); line != values_.end() && line->first.starts_with(prefix);) {
        if (contains(kept, std::string_view(line->first).substr(prefix.size()))) {
            ++line;
            continue;
        }
        bytes_ -= cost(line->first, line->second);
        line = values_.erase(line);
    }
}

DPTK_INLINE std::size_t StoreMap::cost(std::string_view key, std::string_view value) {
    return key.size() + value.size() + store_entry_overhead;
}

DPTK_INLINE std::int64_t StoreMap::integer(std::string_view key, std::string_view value) {
    std::int64_t number = 0;
    const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (status == std::errc{} && end == value.data() + value.size()) return number;
    throw ArgumentError(text("cannot add to the store's key ", quoted_key(key),
                             ": expected a 64-bit integer as its value, got ", value.size(),
                             " bytes of other text"));
}

DPTK_INLINE void StoreMap::throw_full(std::string_view key) {
    throw ArgumentError(text("the store is full: after setting key ", quoted_key(key),
                             ", all keys and values would exceed ", max_store_bytes >> 20, " MiB"));
}

}  // namespace DPTK_NAMESPACE::detail
