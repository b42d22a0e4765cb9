#include "nodes.hpp"

#include <dptk/control/launch/job_request.hpp>
#include <dptk/control/net/socket.hpp>
#include <dptk/control/process/deadline.hpp>
#include <dptk/control/store/tcp_store.hpp>
#include <dptk/control/store/tcp_store_server.hpp>
#include <dptk/core/detail/text.hpp>
#include <dptk/core/error.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

namespace run {

namespace {

using dptk::detail::text;

/// Connects the hosts of a job through a store that node 0 serves.
class NodeRendezvous {
  public:
    explicit NodeRendezvous(const Job& job)
        : hosts_(job.options.nnodes),
          place_{job.options.master_addr, static_cast<std::uint16_t>(job.options.master_port)},
          prefix_(text("nodes/", job.run_id, '/')),
          token_(dptk::detail::environment_token()),
          deadline_(dptk::detail::environment_seconds("DPTK_TIMEOUT").value_or(dptk::default_timeout)) {}

    int join() {
        std::fprintf(stderr, "dptk-run: waiting for the %d hosts of the job at %s\n", hosts_,
                     place_.text().c_str());
        if (is_on_this_host(place_.host)) {
            try {
                serve();
                return 0;
            } catch (const dptk::PortInUseError&) {  // by another dptk-run on this host
            }
        }
        return arrive();
    }

  private:
    [[nodiscard]] std::string key(const char* name, std::int64_t node) const {
        return text(prefix_, name, '/', node);
    }

    void serve() const {
        const dptk::TcpStoreServer server(
            {.port = place_.port,
             .bind_address = dptk::detail::environment_text("DPTK_BIND_ADDRESS"),
             .token = token_});
        const std::shared_ptr<dptk::Store> store = server.local();
        store->set(prefix_ + "hosts", std::to_string(hosts_));
        for (int node = 1; node < hosts_; ++node) {
            try {
                static_cast<void>(store->get(key("arrived", node), deadline_.left()));
            } catch (const dptk::TimeoutError&) {
                throw dptk::TimeoutError(text(node, " of ", hosts_, " hosts have arrived at ", place_.text(),
                                              " within DPTK_TIMEOUT"));
            }
        }
        store->set(prefix_ + "complete", "");
        // No rank of another host may take this store for that of rank 0, so they wait until it has ended.
        const dptk::detail::Deadline ready(std::chrono::seconds(10));
        for (int node = 1; node < hosts_; ++node) {
            try {
                static_cast<void>(store->get(key("waits", node), ready.left()));
            } catch (const dptk::TimeoutError&) {  // its own dptk-run reports why
            }
        }
    }

    [[nodiscard]] int arrive() const {
        const std::shared_ptr<dptk::TcpStore> store =
            dptk::TcpStore::connect(place_, {.token = token_, .timeout = deadline_.left()});
        const std::string expected = store->get(prefix_ + "hosts", std::chrono::seconds(10));
        if (expected != std::to_string(hosts_))
            throw dptk::ArgumentError(text("--nnodes ", hosts_, ": the host at ", place_.text(),
                                           " was started with --nnodes ", expected));
        const std::int64_t node = store->add(prefix_ + "count", 1);
        if (node >= hosts_)
            throw dptk::ArgumentError(
                text("--nnodes ", hosts_, ": as many hosts have already arrived at ", place_.text()));
        store->set(key("arrived", node), "");
        static_cast<void>(store->get(prefix_ + "complete", deadline_.left()));
        store->set(key("waits", node), "");
        try {
            static_cast<void>(store->get(prefix_ + "end", std::chrono::seconds(30)));
        } catch (const dptk::Error&) {  // node 0 has closed the store
        }
        return static_cast<int>(node);
    }

    int hosts_;
    dptk::TcpStoreAddress place_;
    std::string prefix_;
    std::string token_;
    dptk::detail::Deadline deadline_;
};

}  // namespace

bool is_on_this_host(const std::string& host) {
    try {
        return dptk::detail::listen_on(host, 0).has_value();
    } catch (const dptk::Error&) {
        return false;
    }
}

int join_nodes(const Job& job) {
    return NodeRendezvous(job).join();
}

}  // namespace run
