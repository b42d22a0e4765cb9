#pragma once

#include "dptk/control/store/prefix_store.hpp"

#include <cstddef>
#include <utility>
#include <vector>

#include "dptk/control/store/detail/store_map.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE PrefixStore::PrefixStore(std::shared_ptr<Store> inner, std::string prefix)
    : inner_(std::move(inner)), prefix_(std::move(prefix)) {
    if (inner_ == nullptr) throw ArgumentError("PrefixStore: expected an inner store, got null");
}

DPTK_INLINE void PrefixStore::set(std::string_view key, std::string_view value) {
    call(key, [&](const std::string& full) { inner_->set(full, value); });
}

DPTK_INLINE std::string PrefixStore::get(std::string_view key, std::chrono::milliseconds timeout) {
    return call(key, [&](const std::string& full) { return inner_->get(full, timeout); });
}

DPTK_INLINE std::optional<std::string> PrefixStore::find(std::string_view key) {
    return call(key, [&](const std::string& full) { return inner_->find(full); });
}

DPTK_INLINE std::int64_t PrefixStore::add(std::string_view key, std::int64_t amount) {
    return call(key, [&](const std::string& full) { return inner_->add(full, amount); });
}

DPTK_INLINE std::string PrefixStore::compare_and_set(std::string_view key, std::string_view expected,
                                                     std::string_view desired) {
    return call(key,
                [&](const std::string& full) { return inner_->compare_and_set(full, expected, desired); });
}

DPTK_INLINE void PrefixStore::wait(std::span<const std::string> keys, std::chrono::milliseconds timeout) {
    std::vector<std::string> full;
    for (const std::string& key : keys) full.push_back(full_key(key));
    naming(keys, full, [&] { inner_->wait(full, timeout); });
}

DPTK_INLINE bool PrefixStore::erase(std::string_view key) {
    return call(key, [&](const std::string& full) { return inner_->erase(full); });
}

DPTK_INLINE void PrefixStore::set_last_will(std::string_view key, std::string_view value) {
    if (key.empty()) return inner_->set_last_will(key, value);
    call(key, [&](const std::string& full) { inner_->set_last_will(full, value); });
}

DPTK_INLINE std::shared_ptr<Store> PrefixStore::clone() {
    return std::make_shared<PrefixStore>(inner_->clone(), prefix_);
}

DPTK_INLINE std::string PrefixStore::full_key(std::string_view key) const {
    detail::check_store_key(key);
    std::string full = detail::text(prefix_, '/', key);
    if (full.size() <= max_store_key_bytes) return full;
    throw ArgumentError(detail::text(
        "the store's key ", detail::quoted_key(key), " has ", key.size(), " bytes, and ", full.size(),
        " with the prefix ", detail::quoted_key(prefix_), ": expected at most ", max_store_key_bytes));
}

DPTK_INLINE std::string PrefixStore::as_given(std::string message, std::span<const std::string> given,
                                              std::span<const std::string> full) {
    for (std::size_t i = 0; i < given.size(); ++i) {
        const std::string inner = detail::quoted_key(full[i]);
        const std::size_t at = message.find(inner);
        if (at != std::string::npos) message.replace(at, inner.size(), detail::quoted_key(given[i]));
    }
    return message;
}

}  // namespace DPTK_NAMESPACE
