// One of the stores of an elastic job, as a dptk-run that starts members uses it.
#pragma once

#include <dptk/control/elastic/generation.hpp>
#include <dptk/control/store/store.hpp>
#include <dptk/control/store/tcp_store.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace run {

/// If the store is lost, calls have no effect, and lost() says why.
class JobStore {
  public:
    /// A store that this process serves.
    JobStore(std::shared_ptr<dptk::Store> served, dptk::TcpStoreAddress address);

    /// Connects to a store that another process serves. Throws as TcpStore::connect() does.
    JobStore(dptk::TcpStoreAddress address, const dptk::TcpStoreOptions& options,
             std::chrono::milliseconds reply_timeout);

    [[nodiscard]] const dptk::TcpStoreAddress& address() const noexcept { return address_; }

    /// Why the store is lost; empty as long as it is not.
    [[nodiscard]] const std::string& lost() const noexcept { return lost_; }

    [[nodiscard]] dptk::Store& store() noexcept { return *store_; }

    /// Notes that the store is lost.
    void lose(const std::string& why);

    /// Reports that this dptk-run has come, and returns the number of its arrival, from 1. If this process is
    /// killed, the store notes that its members end with it.
    std::int64_t arrive();

    /// Reports the numbers of all members of this dptk-run, before the last one is started.
    void note_members(const std::string& numbers);

    /// Reports the end of a member, and its last vote if that is not in this store already.
    void note_end(dptk::detail::MemberId member, std::string_view how, std::string_view vote = {});

    /// Adds to a number, and returns the sum; 0 if the store is lost.
    std::int64_t add(std::string_view key, std::int64_t amount);
    void set(std::string_view key, std::string_view value);
    /// Sets a key that has no value yet. Returns its value; an empty text if the store is lost.
    std::string set_first(std::string_view key, std::string_view value);
    void erase(std::string_view key);
    [[nodiscard]] std::optional<std::string> find(std::string_view key);

    /// Returns the number of the last generation that was formed in this store; 0 before the first one.
    [[nodiscard]] std::int64_t latest();

    /// Returns whether members of a launcher may still run, or have not been started yet.
    [[nodiscard]] bool may_run(std::int64_t launcher);

  private:
    template <class Call>
    void with_store(Call&& call);

    dptk::TcpStoreAddress address_;
    std::shared_ptr<dptk::Store> store_;
    /// The connection whose end tells that this process has ended; null if this process serves the store.
    std::shared_ptr<dptk::TcpStore> presence_;
    std::int64_t arrival_ = 0;
    std::string lost_;
};

}  // namespace run
