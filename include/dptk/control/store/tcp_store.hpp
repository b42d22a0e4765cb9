/// TCP store: a client of a TcpStoreServer that runs in another process, on this host or another.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/control/net/socket.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/control/store/detail/store_protocol.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// The address of a TcpStoreServer.
struct TcpStoreAddress {
    std::string host;        ///< The host name or numeric address.
    std::uint16_t port = 0;  ///< The TCP port.

    /// Returns a text such as "node0:29500".
    [[nodiscard]] std::string text() const;
};

/// Options of a connection to a TcpStoreServer.
struct TcpStoreOptions {
    /// The token that the server expects; empty for none.
    std::string token = {};
    /// How long connect() waits for the server.
    std::chrono::milliseconds timeout = default_timeout;
};

namespace detail {

/// The time limit of one attempt to connect, and of a reply to a request that does not wait for a key.
inline constexpr std::chrono::milliseconds default_reply_timeout = std::chrono::seconds(10);

[[nodiscard]] std::string receive_frame(const Socket& socket, std::size_t max_body, const Deadline& deadline);

/// Receives the server's greeting, and returns its body.
[[nodiscard]] std::string receive_greeting(const Socket& socket, const Deadline& deadline);

}  // namespace detail

/// A client of a TcpStoreServer. If its connection is reset, the client reconnects within 2 s. If it cannot
/// reconnect, or the server closes the connection, this call and all further ones throw PeerLostError. A
/// forked child must not use its parent's client.
class TcpStore final : public Store {
  public:
    /// Connects to a server. Blocks until the server accepts the connection, for at most the options'
    /// timeout; the system's resolver may add its own timeout. Throws TimeoutError if no server replies, or
    /// if the program at that address is not a store, and ArgumentError if the server refuses this client.
    [[nodiscard]] static std::shared_ptr<TcpStore> connect(TcpStoreAddress address,
                                                           TcpStoreOptions options = {});

    DPTK_INLINE ~TcpStore() override;

    /// Sets how long a reply may take beyond the timeout of its request, and how long clone() may take to
    /// connect, before the store is considered gone. The default is 10 s.
    void set_reply_timeout(std::chrono::milliseconds timeout);

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

    /// Like set_last_will(), but is not carried out if the connection is reset or times out, since the
    /// process may still run then. So it proves that the process has ended, if no other call of this client
    /// follows: a call that times out closes the connection.
    void set_will_of_process(std::string_view key, std::string_view value);

    /// Opens another connection to the server. Throws PeerLostError if this client's connection has failed.
    [[nodiscard]] DPTK_INLINE std::shared_ptr<Store> clone() override;

    [[nodiscard]] DPTK_INLINE StoreConnection connection() override;

  private:
    /// A StoreReply that owns its text.
    struct Answer {
        detail::StoreStatus status = detail::StoreStatus::done;
        std::int64_t number = 0;
        std::string text;
        std::vector<std::uint32_t> missing;
    };

    TcpStore(TcpStoreAddress address, TcpStoreOptions options);

    [[nodiscard]] detail::StoreHello hello() const;

    static void check(std::string_view key, std::string_view value);

    void register_will(std::string_view key, std::string_view value, bool outlives_reset);

    [[nodiscard]] std::string where() const;

    void check_alive() const;

    Answer call(const detail::StoreRequest& request, std::chrono::milliseconds timeout = {});

    Answer exchange_or_fail(detail::StoreRequest request, std::chrono::milliseconds timeout);

    [[nodiscard]] Answer exchange(const detail::StoreRequest& request,
                                  const detail::Deadline& deadline) const;

    /// Tells the server that this client ends without having been lost.
    void send_goodbye();

    /// Connects again after the connection was reset during `request`. Throws PeerLostError if the server has
    /// ended or does not reply in time, and ArgumentError if it no longer knows this client, although it
    /// must.
    void reconnect(const detail::StoreRequest& request, const std::string& problem);

    [[noreturn]] void fail(std::string_view reason);

    TcpStoreAddress address_;
    TcpStoreOptions options_;
    std::mutex mutex_;
    detail::Socket socket_;
    /// The random number by which the server recognizes this client after a reconnect.
    std::uint64_t client_ = 0;
    std::uint32_t sequence_ = 0;
    bool has_will_ = false;
    std::chrono::milliseconds reply_timeout_ = detail::default_reply_timeout;
    std::string problem_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/store/tcp_store.ipp"
#endif
