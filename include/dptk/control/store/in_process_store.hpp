/// In-process store: the store of ranks that are threads of one process.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "dptk/control/store/detail/shared_store_map.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// A store in the memory of this process. A call that waits does not block other calls. Clients in the same
/// process cannot be lost, so last wills are not carried out.
class InProcessStore final : public Store {
  public:
    /// Creates an empty store.
    InProcessStore();

    /// Creates a client of an existing map.
    explicit InProcessStore(std::shared_ptr<detail::SharedStoreMap> map);

    void set(std::string_view key, std::string_view value) override { map_->set(key, value); }

    [[nodiscard]] DPTK_INLINE std::string get(std::string_view key,
                                              std::chrono::milliseconds timeout) override;

    [[nodiscard]] std::optional<std::string> find(std::string_view key) override { return map_->find(key); }

    std::int64_t add(std::string_view key, std::int64_t amount) override { return map_->add(key, amount); }

    DPTK_INLINE std::string compare_and_set(std::string_view key, std::string_view expected,
                                            std::string_view desired) override;

    DPTK_INLINE void wait(std::span<const std::string> keys, std::chrono::milliseconds timeout) override;

    bool erase(std::string_view key) override { return map_->erase(key); }

    DPTK_INLINE void set_last_will(std::string_view key, std::string_view value) override;

    [[nodiscard]] DPTK_INLINE std::shared_ptr<Store> clone() override;

  private:
    std::shared_ptr<detail::SharedStoreMap> map_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/store/in_process_store.ipp"
#endif
