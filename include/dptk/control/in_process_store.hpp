/// The store of ranks that are threads of one process.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/control/deadline.hpp"
#include "dptk/control/shared_store_map.hpp"
#include "dptk/control/store.hpp"
#include "dptk/control/store_map.hpp"

namespace dptk {

/// Made by std::make_shared<InProcessStore>(). A call that waits does not hold others up. Clients in the same
/// process cannot vanish, so that last wills are not carried out.
class InProcessStore final : public Store {
  public:
    InProcessStore() : map_(std::make_shared<detail::SharedStoreMap>()) {}

    /// Another client of this map.
    explicit InProcessStore(std::shared_ptr<detail::SharedStoreMap> map) : map_(std::move(map)) {}

    void set(std::string_view key, std::string_view value) override { map_->set(key, value); }

    [[nodiscard]] std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
        std::optional<std::string> value = map_->get(key, detail::Deadline(timeout));
        if (value) return std::move(*value);
        const std::string missing(key);
        detail::throw_missing_keys({&missing, 1}, timeout);
    }

    [[nodiscard]] std::optional<std::string> find(std::string_view key) override { return map_->find(key); }

    std::int64_t add(std::string_view key, std::int64_t amount) override { return map_->add(key, amount); }

    std::string compare_and_set(std::string_view key, std::string_view expected,
                                std::string_view desired) override {
        return map_->compare_and_set(key, expected, desired);
    }

    void wait(std::span<const std::string> keys, std::chrono::milliseconds timeout) override {
        const std::vector<std::string> missing = map_->wait(keys, detail::Deadline(timeout));
        if (!missing.empty()) detail::throw_missing_keys(missing, timeout);
    }

    bool erase(std::string_view key) override { return map_->erase(key); }

    void set_last_will(std::string_view key, std::string_view value) override {
        if (!key.empty()) detail::check_store_key(key);
        detail::check_store_value(key, value);
    }

    [[nodiscard]] std::shared_ptr<Store> clone() override { return std::make_shared<InProcessStore>(map_); }

  private:
    std::shared_ptr<detail::SharedStoreMap> map_;
};

}  // namespace dptk
