#pragma once

#include "dptk/control/elastic/membership_server.hpp"

#include <chrono>
#include <exception>

#include "dptk/control/process/awake_clock.hpp"
#include "dptk/control/process/background_thread.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE MembershipServer::MembershipServer(const TcpStoreServerOptions& options,
                                               const MembershipRules& rules)
    : server_(options), store_(server_.local()), monitor_(rules, MembershipMonitor::clock::now()) {
    thread_ = start_background_thread([this] { run(); });
}

DPTK_INLINE MembershipServer::~MembershipServer() {
    {
        const std::lock_guard lock(mutex_);
        has_ended_ = true;
    }
    ends_.notify_all();
    thread_.join();
}

DPTK_INLINE void MembershipServer::look() {
    const std::lock_guard lock(mutex_);
    monitor_.look(*store_, MembershipMonitor::clock::now());
    monitor_.erase_earlier(server_);
}

DPTK_INLINE bool MembershipServer::has_members() {
    const std::lock_guard lock(mutex_);
    return monitor_.over().empty() && monitor_.has_members(MembershipMonitor::clock::now());
}

DPTK_INLINE void MembershipServer::run() noexcept {
    constexpr std::chrono::milliseconds interval{10};
    try {
        const AwakeClock::Waiting waiting;
        std::unique_lock lock(mutex_);
        while (!ends_.wait_for(lock, interval, [&] { return has_ended_; })) {
            monitor_.look(*store_, MembershipMonitor::clock::now());
            monitor_.erase_earlier(server_);
        }
    } catch (const std::exception& error) {
        log(LogLevel::error, -1, text("the members of the elastic job can no longer change: ", error.what()));
    }
}

}  // namespace DPTK_NAMESPACE::detail
