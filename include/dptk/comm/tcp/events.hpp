/// Events of the sockets of a mesh, by epoll: each event has a kind, and the number of what it is about.
#pragma once

#include <sys/epoll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dptk/control/net/socket.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

struct TcpEvent {
    enum class Kind : std::uint32_t {
        listener,    ///< Somebody has connected.
        guest,       ///< A connection that somebody has made, by its number, until its handshake is complete.
        attempt,     ///< A connection to a rank, until its handshake is complete.
        connection,  ///< An open connection to a rank.
        wake,        ///< Another thread wakes the one that waits.
        failure,     ///< The job has failed.
    };

    Kind kind = Kind::listener;
    std::uint32_t number = 0;
};

class TcpEvents {
  public:
    /// Throws BackendError if the system cannot wait for events.
    TcpEvents();

    /// Reports `event` whenever the descriptor is ready for `events`, until it is closed.
    void add(int descriptor, std::uint32_t events, TcpEvent event) const;

    /// Changes for what the descriptor is watched, and what is reported.
    void change(int descriptor, std::uint32_t events, TcpEvent event) const;

    /// Ends the reports of a descriptor. Without this, they would go on after it is closed, if a child of
    /// this process has inherited it.
    void remove(int descriptor) const noexcept;

    /// Waits until there are events, for at most `timeout`. Returns how many there are.
    [[nodiscard]] std::size_t wait(std::span<epoll_event> found, std::chrono::milliseconds timeout) const;

    /// Returns what a found event is about.
    [[nodiscard]] static TcpEvent event_of(const epoll_event& found) noexcept;

  private:
    void control(int operation, int descriptor, std::uint32_t events, TcpEvent event) const;

    FileDescriptor epoll_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/tcp/events.ipp"
#endif
