/// Opens the connections of a rank: connects to other ranks, and accepts those that connect to it and prove
/// that they belong to the job. Nothing blocks, and who proves nothing costs a bounded amount.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/comm/tcp/events.hpp"
#include "dptk/comm/tcp/pending.hpp"
#include "dptk/control/net/socket.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Where a rank listens: a port at one or several addresses, which are tried in this order.
struct TcpAddresses {
    std::uint16_t port = 0;
    std::vector<std::string> hosts;

    /// Returns the text that a rank publishes, such as "4711 10.0.0.7 192.168.1.7".
    [[nodiscard]] std::string to_value() const;

    /// Parses a published text. Returns nullopt if it has no port or no address.
    [[nodiscard]] static std::optional<TcpAddresses> from_value(std::string_view value);
};

class TcpConnector {
  public:
    /// What the owner of the connections provides.
    struct Owner {
        /// Takes an open connection to a rank, whose socket is among the events.
        std::function<void(int rank, Socket socket)> open;
        /// Returns whether a connection to this rank is not needed any more, or exists.
        std::function<bool(int rank)> is_closed_to;
        /// Takes the reason why a rank is gone: it refuses at all of its addresses.
        std::function<void(int rank, const std::string& problem)> lose;
        /// Takes the reason why a rank could not be reached within the timeout.
        std::function<void(int rank, const std::string& problem)> give_up;
        /// Returns the name of a rank for messages.
        std::function<std::string(int rank)> label;
    };

    /// Listens at the address; an empty one means all interfaces. Throws BackendError if that fails.
    TcpConnector(const TcpEvents& events, const std::string& listen_address,
                 std::chrono::milliseconds timeout, Owner owner);

    /// Sets the identity that handshakes prove. Called before the first event is handled.
    void set_identity(const TcpIdentity& self) { self_ = self; }

    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

    /// Connects to a rank, unless that is in progress. Retries until the timeout. All functions below throw
    /// what the functions of the owner throw, and BackendError if no more files can be opened.
    void connect(int rank, const TcpAddresses& addresses);

    /// Whether advance() must be called now and then.
    [[nodiscard]] bool has_pending() const noexcept {
        return !attempts_.empty() || !guests_.empty() || pauses_accepting_;
    }

    void handle(TcpEvent event);

    /// Retries what waits for a retry, and gives up what takes too long.
    void advance();

    /// Gives up all connections that are not open yet.
    void clear() noexcept;

  private:
    using Clock = std::chrono::steady_clock;

    /// Attempts to connect to a rank, until one succeeds.
    struct Attempt {
        Attempt(TcpAddresses where, std::chrono::milliseconds timeout)
            : addresses(std::move(where)), deadline(timeout) {}

        TcpAddresses addresses;
        Deadline deadline;
        std::size_t next = 0;                 // the index of the address
        std::optional<TcpPending> pending{};  // null between two attempts
        Clock::time_point not_before{};
        std::chrono::milliseconds pause{10};
        std::size_t refusals = 0;
    };

    void accept_all();
    void pause_accepting();
    void resume_accepting();
    void advance_guest(std::uint32_t number);
    void advance_attempt(int rank);
    void fail_attempt(int rank, Attempt& attempt);
    void open(int rank, Socket socket);
    void erase_guest(std::map<std::uint32_t, TcpPending>::iterator guest) noexcept;
    void end_pending(Attempt& attempt) noexcept;

    const TcpEvents& events_;
    const std::chrono::milliseconds timeout_;
    const Owner owner_;
    TcpIdentity self_;
    Socket listener_;
    std::uint16_t port_ = 0;
    bool pauses_accepting_ = false;
    Clock::time_point accept_after_{};
    std::map<int, Attempt> attempts_;  // by rank
    std::map<std::uint32_t, TcpPending> guests_;
    std::uint32_t next_guest_ = 0;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/tcp/connector.ipp"
#endif
