/// Membership server: serves a store of an elastic job, and forms the generations of the members that come to
/// it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "dptk/control/elastic/membership_monitor.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/control/store/tcp_store_server.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Any thread may call it.
class MembershipServer {
  public:
    /// Throws as TcpStoreServer does.
    MembershipServer(const TcpStoreServerOptions& options, const MembershipRules& rules);
    MembershipServer(const MembershipServer&) = delete;
    MembershipServer& operator=(const MembershipServer&) = delete;
    ~MembershipServer();

    [[nodiscard]] std::uint16_t port() const noexcept { return server_.port(); }

    /// Returns a client of the store.
    [[nodiscard]] std::shared_ptr<Store> local() const { return server_.local(); }

    /// Ends or forms a generation if that is due. A background thread does so often; a call has its effect
    /// before it returns. Throws as the store does.
    void look();

    /// Whether members are left here whose job has not ended.
    [[nodiscard]] bool has_members();

  private:
    void run() noexcept;

    TcpStoreServer server_;
    std::shared_ptr<Store> store_;
    std::mutex mutex_;
    std::condition_variable ends_;
    bool has_ended_ = false;
    MembershipMonitor monitor_;
    std::thread thread_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/elastic/membership_server.ipp"
#endif
