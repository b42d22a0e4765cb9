/// A StoreMap for several threads, which can wait for keys: the state behind InProcessStore, and behind the
/// server of TcpStore.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <iterator>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/control/deadline.hpp"
#include "dptk/control/store_map.hpp"
#include "dptk/core/error.hpp"

namespace dptk::detail {

class SharedStoreMap {
  public:
    /// Gets each key that is written, under the lock: must be short and not call back.
    using Observer = std::function<void(std::string_view key)>;

    void set(std::string_view key, std::string_view value) {
        const std::lock_guard lock(mutex_);
        check_open();
        map_.set(key, value);
        announce(key);
    }

    [[nodiscard]] std::optional<std::string> find(std::string_view key) {
        check_store_key(key);
        const std::lock_guard lock(mutex_);
        check_open();
        const std::string* value = map_.find(key);
        return value == nullptr ? std::nullopt : std::optional(*value);
    }

    std::int64_t add(std::string_view key, std::int64_t amount) {
        const std::lock_guard lock(mutex_);
        check_open();
        const std::int64_t sum = map_.add(key, amount);
        announce(key);
        return sum;
    }

    std::string compare_and_set(std::string_view key, std::string_view expected, std::string_view desired) {
        check_store_key(key);
        const std::lock_guard lock(mutex_);
        check_open();
        std::string value = map_.compare_and_set(key, expected, desired);
        announce(key);
        return value;
    }

    bool erase(std::string_view key) {
        const std::lock_guard lock(mutex_);
        check_open();
        return map_.erase(key);
    }

    /// The value as soon as there is one; nothing at the deadline.
    [[nodiscard]] std::optional<std::string> get(std::string_view key, const Deadline& deadline) {
        check_store_key(key);
        std::unique_lock lock(mutex_);
        const std::string* value = nullptr;
        changed_.wait_until(lock, deadline.at(),
                            [&] { return closed_ || (value = map_.find(key)) != nullptr; });
        check_open();
        return value == nullptr ? std::nullopt : std::optional(*value);
    }

    /// Waits until all keys have a value. Returns those that have none at the deadline.
    [[nodiscard]] std::vector<std::string> wait(std::span<const std::string> keys, const Deadline& deadline) {
        for (const std::string& key : keys) check_store_key(key);
        const auto has_none = [&](const std::string& key) { return map_.find(key) == nullptr; };
        std::unique_lock lock(mutex_);
        changed_.wait_until(lock, deadline.at(),
                            [&] { return closed_ || std::none_of(keys.begin(), keys.end(), has_none); });
        check_open();
        std::vector<std::string> missing;
        std::copy_if(keys.begin(), keys.end(), std::back_inserter(missing), has_none);
        return missing;
    }

    /// An empty observer ends the observation.
    void observe(Observer observer) {
        const std::lock_guard lock(mutex_);
        observer_ = std::move(observer);
    }

    /// Wakes all who wait; they and all later calls throw PeerLostError with the reason.
    void close(std::string reason) {
        const std::lock_guard lock(mutex_);
        closed_ = true;
        reason_ = std::move(reason);
        changed_.notify_all();
    }

  private:
    void check_open() const {
        if (closed_) throw PeerLostError(reason_);
    }

    void announce(std::string_view key) {
        changed_.notify_all();
        if (observer_) observer_(key);
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    StoreMap map_;
    Observer observer_;
    bool closed_ = false;
    std::string reason_;
};

}  // namespace dptk::detail
