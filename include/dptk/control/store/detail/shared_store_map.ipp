#pragma once

#include "dptk/control/store/detail/shared_store_map.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void SharedStoreMap::set(std::string_view key, std::string_view value) {
    const std::lock_guard lock(mutex_);
    check_open();
    map_.set(key, value);
    announce(key);
}

DPTK_INLINE std::optional<std::string> SharedStoreMap::find(std::string_view key) {
    check_store_key(key);
    const std::lock_guard lock(mutex_);
    check_open();
    const std::string* value = map_.find(key);
    return value == nullptr ? std::nullopt : std::optional(*value);
}

DPTK_INLINE std::int64_t SharedStoreMap::add(std::string_view key, std::int64_t amount) {
    const std::lock_guard lock(mutex_);
    check_open();
    const std::int64_t sum = map_.add(key, amount);
    announce(key);
    return sum;
}

DPTK_INLINE std::string SharedStoreMap::compare_and_set(std::string_view key, std::string_view expected,
                                                        std::string_view desired) {
    check_store_key(key);
    const std::lock_guard lock(mutex_);
    check_open();
    std::string value = map_.compare_and_set(key, expected, desired);
    if (map_.find(key) != nullptr) announce(key);
    return value;
}

DPTK_INLINE bool SharedStoreMap::erase(std::string_view key) {
    const std::lock_guard lock(mutex_);
    check_open();
    return map_.erase(key);
}

DPTK_INLINE void SharedStoreMap::erase_all(std::string_view prefix, std::span<const std::string_view> kept) {
    const std::lock_guard lock(mutex_);
    check_open();
    map_.erase_all(prefix, kept);
}

DPTK_INLINE std::optional<std::string> SharedStoreMap::get(std::string_view key, const Deadline& deadline) {
    check_store_key(key);
    std::unique_lock lock(mutex_);
    const std::string* value = nullptr;
    deadline.wait(changed_, lock, [&] { return closed_ || (value = map_.find(key)) != nullptr; });
    check_open();
    return value == nullptr ? std::nullopt : std::optional(*value);
}

DPTK_INLINE std::vector<std::string> SharedStoreMap::wait(std::span<const std::string> keys,
                                                          const Deadline& deadline) {
    for (const std::string& key : keys) check_store_key(key);
    const auto has_none = [&](const std::string& key) { return map_.find(key) == nullptr; };
    std::unique_lock lock(mutex_);
    deadline.wait(changed_, lock,
                  [&] { return closed_ || std::none_of(keys.begin(), keys.end(), has_none); });
    check_open();
    std::vector<std::string> missing;
    std::copy_if(keys.begin(), keys.end(), std::back_inserter(missing), has_none);
    return missing;
}

DPTK_INLINE void SharedStoreMap::observe(Observer observer) {
    const std::lock_guard lock(mutex_);
    observer_ = std::move(observer);
}

DPTK_INLINE void SharedStoreMap::close(std::string reason) {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    reason_ = std::move(reason);
    changed_.notify_all();
}

DPTK_INLINE void SharedStoreMap::check_open() const {
    if (closed_) throw PeerLostError(reason_);
}

DPTK_INLINE void SharedStoreMap::announce(std::string_view key) {
    changed_.notify_all();
    if (observer_) observer_(key);
}

}  // namespace DPTK_NAMESPACE::detail
