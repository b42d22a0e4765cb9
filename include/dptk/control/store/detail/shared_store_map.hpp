/// Shared store map: a thread-safe StoreMap whose users can wait for keys. It holds the state of
/// InProcessStore and of TcpStoreServer.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/control/process/deadline.hpp"
#include "dptk/control/store/detail/store_map.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

class SharedStoreMap {
  public:
    /// Called with each key that is written, while the lock is held. Must be short, and must not call the
    /// map.
    using Observer = std::function<void(std::string_view key)>;

    void set(std::string_view key, std::string_view value);

    [[nodiscard]] std::optional<std::string> find(std::string_view key);

    std::int64_t add(std::string_view key, std::int64_t amount);

    std::string compare_and_set(std::string_view key, std::string_view expected, std::string_view desired);

    bool erase(std::string_view key);

    void erase_all(std::string_view prefix, std::span<const std::string_view> kept);

    /// Waits for a value, and returns it. Returns nullopt at the deadline.
    [[nodiscard]] std::optional<std::string> get(std::string_view key, const Deadline& deadline);

    /// Waits until all keys have a value, at most until the deadline. Returns the keys that still have no
    /// value.
    [[nodiscard]] std::vector<std::string> wait(std::span<const std::string> keys, const Deadline& deadline);

    /// Sets the observer; an empty function removes it.
    void observe(Observer observer);

    /// Closes the map: all waiting and later calls throw PeerLostError with the reason.
    void close(std::string reason);

  private:
    void check_open() const;

    void announce(std::string_view key);

    std::mutex mutex_;
    std::condition_variable changed_;
    StoreMap map_;
    Observer observer_;
    bool closed_ = false;
    std::string reason_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/store/detail/shared_store_map.ipp"
#endif
