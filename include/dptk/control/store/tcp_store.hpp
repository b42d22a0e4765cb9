/// A client of a TcpStoreServer in another process, on this or another host.
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

/// Where a TcpStoreServer listens.
struct TcpStoreAddress {
    std::string host;        ///< A name or number.
    std::uint16_t port = 0;  ///< Of TCP.

    /// "node0:29500".
    [[nodiscard]] std::string text() const;
};

/// How a client connects.
struct TcpStoreOptions {
    /// What the server expects; empty for none.
    std::string token = {};
    /// How long to wait for the server when connecting.
    std::chrono::milliseconds timeout = default_timeout;
};

namespace detail {

/// How long one attempt to connect, or a reply that needs no waiting, may take.
inline constexpr std::chrono::milliseconds default_reply_timeout = std::chrono::seconds(10);

[[nodiscard]] std::string receive_frame(const Socket& socket, std::size_t max_body, const Deadline& deadline);

/// The body of the server's greeting.
[[nodiscard]] std::string receive_greeting(const Socket& socket, const Deadline& deadline);

}  // namespace detail

/// After its connection has failed once, a client is of no more use: all its calls throw PeerLostError. A
/// child process that was forked must not use its parent's client.
class TcpStore final : public Store {
  public:
    /// Blocks until the server is there, for at most the options' timeout; the system's resolver may add its
    /// own. Throws TimeoutError where nobody answers, or what answers is no store, and ArgumentError where
    /// the server refuses this client.
    [[nodiscard]] static std::shared_ptr<TcpStore> connect(TcpStoreAddress address,
                                                           TcpStoreOptions options = {});

    DPTK_INLINE ~TcpStore() override;

    /// How long each reply may take beyond the timeout of its own request, and the way of a clone to the
    /// store, before the store counts as gone. 10 s unless set.
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

    /// Opens a connection of its own, while this one lives.
    [[nodiscard]] DPTK_INLINE std::shared_ptr<Store> clone() override;

  private:
    /// A StoreReply that owns its text.
    struct Answer {
        detail::StoreStatus status = detail::StoreStatus::done;
        std::int64_t number = 0;
        std::string text;
        std::vector<std::uint32_t> missing;
    };

    TcpStore(TcpStoreAddress address, TcpStoreOptions options, detail::Socket socket);

    static void check(std::string_view key, std::string_view value);

    [[nodiscard]] std::string where() const;

    void check_alive() const;

    Answer call(const detail::StoreRequest& request, std::chrono::milliseconds timeout = {});

    Answer exchange_or_fail(const detail::StoreRequest& request, std::chrono::milliseconds patience);

    [[nodiscard]] Answer exchange(const detail::StoreRequest& request,
                                  std::chrono::milliseconds patience) const;

    [[noreturn]] void fail(std::string_view reason);

    TcpStoreAddress address_;
    TcpStoreOptions options_;
    std::mutex mutex_;
    detail::Socket socket_;
    std::chrono::milliseconds reply_timeout_ = detail::default_reply_timeout;
    std::string problem_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/store/tcp_store.ipp"
#include "dptk/core/error.hpp"
#endif
