/// A StoreMap for several threads, which can wait for keys: the state behind InProcessStore, and behind the
/// server of TcpStore.
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
    /// Gets each key that is written, under the lock: must be short and not call back.
    using Observer = std::function<void(std::string_view key)>;

    void set(std::string_view key, std::string_view value);

    [[nodiscard]] std::optional<std::string> find(std::string_view key);

    std::int64_t add(std::string_view key, std::int64_t amount);

    std::string compare_and_set(std::string_view key, std::string_view expected, std::string_view desired);

    bool erase(std::string_view key);

    /// The value as soon as there is one; nothing at the deadline.
    [[nodiscard]] std::optional<std::string> get(std::string_view key, const Deadline& deadline);

    /// Waits until all keys have a value. Returns those that have none at the deadline.
    [[nodiscard]] std::vector<std::string> wait(std::span<const std::string> keys, const Deadline& deadline);

    /// An empty observer ends the observation.
    void observe(Observer observer);

    /// Wakes all who wait; they and all later calls throw PeerLostError with the reason.
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
#include "dptk/core/error.hpp"
#endif
