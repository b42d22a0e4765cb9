#pragma once

#include "dptk/control/store/in_process_store.hpp"

#include <utility>
#include <vector>

#include "dptk/control/process/deadline.hpp"
#include "dptk/control/store/detail/store_map.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE InProcessStore::InProcessStore() : map_(std::make_shared<detail::SharedStoreMap>()) {}

DPTK_INLINE InProcessStore::InProcessStore(std::shared_ptr<detail::SharedStoreMap> map)
    : map_(std::move(map)) {}

DPTK_INLINE std::string InProcessStore::get(std::string_view key, std::chrono::milliseconds timeout) {
    std::optional<std::string> value = map_->get(key, detail::Deadline(timeout));
    if (value) return std::move(*value);
    const std::string missing(key);
    detail::throw_missing_keys({&missing, 1}, timeout);
}

DPTK_INLINE std::string InProcessStore::compare_and_set(std::string_view key, std::string_view expected,
                                                        std::string_view desired) {
    return map_->compare_and_set(key, expected, desired);
}

DPTK_INLINE void InProcessStore::wait(std::span<const std::string> keys, std::chrono::milliseconds timeout) {
    const std::vector<std::string> missing = map_->wait(keys, detail::Deadline(timeout));
    if (!missing.empty()) detail::throw_missing_keys(missing, timeout);
}

DPTK_INLINE void InProcessStore::set_last_will(std::string_view key, std::string_view value) {
    if (!key.empty()) detail::check_store_key(key);
    detail::check_store_value(key, value);
}

DPTK_INLINE std::shared_ptr<Store> InProcessStore::clone() {
    return std::make_shared<InProcessStore>(map_);
}

}  // namespace DPTK_NAMESPACE
