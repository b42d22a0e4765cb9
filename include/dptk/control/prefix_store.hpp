/// A part of another store, in which all keys begin with a prefix, so that several users of one store do not
/// meet each other's keys.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/control/store.hpp"
#include "dptk/control/store_map.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/text.hpp"

namespace dptk {

/// The key "ready" below the prefix "epoch1" is "epoch1/ready" in the inner store. Errors name the keys as
/// they were given here. The last will is the inner client's own: it has one, whichever prefix it comes from.
class PrefixStore final : public Store {
  public:
    /// Throws ArgumentError where `inner` is null.
    PrefixStore(std::shared_ptr<Store> inner, std::string prefix)
        : inner_(std::move(inner)), prefix_(std::move(prefix)) {
        if (inner_ == nullptr) throw ArgumentError("a PrefixStore needs an inner store, and was given none");
    }

    void set(std::string_view key, std::string_view value) override {
        call(key, [&](const std::string& full) { inner_->set(full, value); });
    }

    [[nodiscard]] std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
        return call(key, [&](const std::string& full) { return inner_->get(full, timeout); });
    }

    [[nodiscard]] std::optional<std::string> find(std::string_view key) override {
        return call(key, [&](const std::string& full) { return inner_->find(full); });
    }

    std::int64_t add(std::string_view key, std::int64_t amount) override {
        return call(key, [&](const std::string& full) { return inner_->add(full, amount); });
    }

    std::string compare_and_set(std::string_view key, std::string_view expected,
                                std::string_view desired) override {
        return call(
            key, [&](const std::string& full) { return inner_->compare_and_set(full, expected, desired); });
    }

    void wait(std::span<const std::string> keys, std::chrono::milliseconds timeout) override {
        std::vector<std::string> full;
        for (const std::string& key : keys) full.push_back(full_key(key));
        naming(keys, full, [&] { inner_->wait(full, timeout); });
    }

    bool erase(std::string_view key) override {
        return call(key, [&](const std::string& full) { return inner_->erase(full); });
    }

    void set_last_will(std::string_view key, std::string_view value) override {
        if (key.empty()) return inner_->set_last_will(key, value);
        call(key, [&](const std::string& full) { inner_->set_last_will(full, value); });
    }

    [[nodiscard]] std::shared_ptr<Store> clone() override {
        return std::make_shared<PrefixStore>(inner_->clone(), prefix_);
    }

  private:
    [[nodiscard]] std::string full_key(std::string_view key) const {
        detail::check_store_key(key);
        std::string full = detail::text(prefix_, '/', key);
        if (full.size() <= max_store_key_bytes) return full;
        throw ArgumentError(detail::text("the store's key ", detail::quoted_key(key), " has ", key.size(),
                                         " bytes, and ", full.size(), " with the prefix ",
                                         detail::quoted_key(prefix_), ", where at most ", max_store_key_bytes,
                                         " belong"));
    }

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
                                              std::span<const std::string> full) {
        for (std::size_t i = 0; i < given.size(); ++i) {
            const std::string inner = detail::quoted_key(full[i]);
            const std::size_t at = message.find(inner);
            if (at != std::string::npos) message.replace(at, inner.size(), detail::quoted_key(given[i]));
        }
        return message;
    }

    std::shared_ptr<Store> inner_;
    std::string prefix_;
};

}  // namespace dptk
