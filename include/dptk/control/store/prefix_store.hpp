/// Prefix store: adds a prefix to all keys of another store, so that several users can share that store
/// without conflicts. Corresponds to torch.distributed.PrefixStore.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE {

/// A store whose keys have a prefix in another store: with the prefix "epoch1", the key "ready" is
/// "epoch1/ready" in the inner store. Errors name keys without the prefix. All prefix stores on top of one
/// inner client share that client's last will.
class PrefixStore final : public Store {
  public:
    /// Creates a store on top of `inner`. Throws ArgumentError if `inner` is null.
    PrefixStore(std::shared_ptr<Store> inner, std::string prefix);

    DPTK_INLINE void set(std::string_view key, std::string_view value) override;

    [[nodiscard]] DPTK_INLINE std::string get(std::string_view key,
                                              std::chrono::milliseconds timeout) override;

    [[nodiscard]] DPTK_INLINE std::optional<std::string> find(std::string_view key) override;

    DPTK_INLINE std::int64_t add(std::string_view key, std::int64_t amount) override;

    DPTK_INLINE std::string compare_and_set(std::string_view key, std::string_view expected,
                                            std::string_view desired) override;

    DPTK_INLINE void wait(std::span<const std::string> keys, std::chrono::milliseconds timeout) override;

    DPTK_INLINE bool erase(std::string_view key) override;

    DPTK_INLINE void set_last_will(std::string_view key, std::string_view value) override;

    [[nodiscard]] DPTK_INLINE std::shared_ptr<Store> clone() override;

    [[nodiscard]] StoreConnection connection() override { return inner_->connection(); }

  private:
    [[nodiscard]] std::string full_key(std::string_view key) const;

    template <class Operation>
    std::invoke_result_t<Operation, const std::string&> call(std::string_view key,
                                                             Operation operation) const {
        const std::string given(key);
        const std::string full = full_key(key);
        return naming({&given, 1}, {&full, 1}, [&] { return operation(full); });
    }

    template <class Operation>
    static std::invoke_result_t<Operation> naming(std::span<const std::string> given,
                                                  std::span<const std::string> full, Operation operation) {
        try {
            return operation();
        } catch (const TimeoutError& error) {
            throw TimeoutError(as_given(error.what(), given, full));
        } catch (const ArgumentError& error) {
            throw ArgumentError(as_given(error.what(), given, full));
        }
    }

    [[nodiscard]] static std::string as_given(std::string message, std::span<const std::string> given,
                                              std::span<const std::string> full);

    std::shared_ptr<Store> inner_;
    std::string prefix_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/store/prefix_store.ipp"
#endif
