#pragma once

#include "dptk/control/launch/detail/rendezvous_store.hpp"

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "dptk/control/launch/detail/slurm_hostlist.hpp"
#include "dptk/control/net/host.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/control/process/random_word.hpp"
#include "dptk/control/store/detail/served_store.hpp"
#include "dptk/control/store/file_store.hpp"
#include "dptk/control/store/tcp_store.hpp"
#include "dptk/core/detail/fnv1a.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

// It distinguishes this job from other jobs on the same port.
DPTK_INLINE std::string job_token(const JobRequest& request) {
    std::string out = request.token;
    for (const char* variable : {"DPTK_RUN_ID", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}) {
        out += "/" + environment_text(variable);
    }
    if (request.method.rendezvous == RendezvousKind::slurm) {
        out += text('/', environment_text("SLURM_JOB_ID"), '.', environment_text("SLURM_STEP_ID"));
    }
    return out.size() <= max_store_token_bytes ? out : text(fnv1a(out));
}

class RendezvousStoreOpener {
  public:
    explicit RendezvousStoreOpener(const JobRequest& request)
        : request_(request), deadline_(request.timeout) {}

    [[nodiscard]] RendezvousStore find() {
        if (request_.generation_store) return {request_.generation_store, "the store of the elastic job"};
        switch (request_.method.rendezvous) {
            case RendezvousKind::tcp: return at_port(request_.method.host, {request_.method.port});
            case RendezvousKind::env: return by_environment();
            case RendezvousKind::slurm: return by_slurm();
            case RendezvousKind::file: return by_file();
            case RendezvousKind::none:
            case RendezvousKind::mpi: break;
        }
        return by_store(request_.store, "the given store");
    }

  private:
    [[nodiscard]] int rank() const { return request_.launch.rank; }

    [[nodiscard]] RendezvousStore by_environment() {
        const std::string host = environment_text("MASTER_ADDR");
        const std::string port_text = environment_text("MASTER_PORT");
        if (host.empty() || port_text.empty()) {
            throw ArgumentError(text("rank ", rank(), ": env:// needs MASTER_ADDR and MASTER_PORT, and ",
                                     host.empty() ? "MASTER_ADDR" : "MASTER_PORT", " is not set"));
        }
        const std::uint16_t port = parse_port("MASTER_PORT=" + port_text, port_text);
        if (environment_text("TORCHELASTIC_USE_AGENT_STORE") != "True") return at_port(host, {port});
        // torchrun's agent itself listens on MASTER_PORT, so rank 0 serves at one of the next ports.
        std::vector<std::uint16_t> ports;
        for (int next = 1; next <= agent_neighbors; ++next) {
            ports.push_back(static_cast<std::uint16_t>(port + next > 65535 ? port - next : port + next));
        }
        return at_port(host, ports);
    }

    [[nodiscard]] RendezvousStore by_slurm() {
        std::string list = environment_text("SLURM_STEP_NODELIST");
        if (list.empty()) list = environment_text("SLURM_JOB_NODELIST");
        const std::string job = environment_text("SLURM_JOB_ID");
        std::string host = environment_text("MASTER_ADDR");
        if (host.empty()) host = first_slurm_host(list);
        const std::string port = environment_text("MASTER_PORT");
        if (host.empty() || (job.empty() && port.empty())) {
            throw ArgumentError(text("rank ", rank(),
                                     ": slurm:// needs SLURM_STEP_NODELIST or MASTER_ADDR, and SLURM_JOB_ID "
                                     "or MASTER_PORT; found SLURM_STEP_NODELIST=",
                                     list, ", SLURM_JOB_ID=", job));
        }
        return at_port(host, {port.empty() ? slurm_port(job) : parse_port("MASTER_PORT=" + port, port)});
    }

    /// Opens a store that rank 0 serves at the first of `ports` that is free.
    [[nodiscard]] RendezvousStore at_port(const std::string& host, const std::vector<std::uint16_t>& ports) {
        const std::string token = job_token(request_);
        RendezvousStore found;
        if (rank() == 0) found = serve(host, ports, token);
        const bool serves = found.store != nullptr;
        if (!serves) found = connect(host, ports, token);
        open_namespace(found, serves);
        return found;
    }

    /// Restricts the store to a key prefix that rank 0 chooses, so that a job can repeat its rendezvous at
    /// the same address.
    void open_namespace(RendezvousStore& found, bool serves) {
        const std::string key = "room";
        std::string run = random_word();
        if (serves) {
            found.store->set(key, run);
            found.store->set(running_key, run);
            found.keep_alive = key_eraser(found.store, key);
        } else {
            try {
                run = found.store->get(key, deadline_.left());
            } catch (const TimeoutError&) {
                throw TimeoutError(text("rank ", rank(), ": rank 0 serves a store at ", found.where,
                                        ", but the rendezvous there is already complete"));
            }
        }
        found.store = std::make_shared<PrefixStore>(found.store, run);
    }

    [[nodiscard]] std::string name(const std::string& host, std::uint16_t port) const {
        return "tcp://" + TcpStoreAddress{host, port}.text();
    }

    /// Serves the store. Returns an empty result if another process of this job already serves it; the
    /// rendezvous then reports that two processes have rank 0.
    [[nodiscard]] RendezvousStore serve(const std::string& host, const std::vector<std::uint16_t>& ports,
                                        const std::string& token) {
        std::string problem;
        for (const std::uint16_t port : ports) {
            try {
                return {StoreServers::get().serve(
                            {.port = port, .bind_address = bind_address(host), .token = token}),
                        name(host, port)};
            } catch (const PortInUseError& error) {
                problem = error.what();
            }
        }
        if (ports.size() == 1) {
            try {
                const auto other =
                    TcpStore::connect({host, ports[0]}, {.token = token, .timeout = std::chrono::seconds(1)});
                return {};
            } catch (const ArgumentError&) {
                problem += ", a dptk job with another name or token";
            } catch (const Error&) {
                // Another program uses the port.
            }
        }
        throw ArgumentError(text("rank 0 cannot serve the store of its job: ", problem,
                                 "; choose another port with MASTER_PORT or the init_method"));
    }

    /// Returns the address to listen on: the request's bind address, if set; `host`, if it is a loopback
    /// address; otherwise an empty string, which means all interfaces.
    [[nodiscard]] std::string bind_address(const std::string& host) const {
        if (!request_.bind_address.empty()) return request_.bind_address;
        const bool loopback = host == "localhost" || is_loopback(host);
        return loopback ? host : "";
    }

    [[nodiscard]] RendezvousStore connect(const std::string& host, const std::vector<std::uint16_t>& ports,
                                          const std::string& token) {
        const auto reach = [&](std::uint16_t port, std::chrono::milliseconds time) -> RendezvousStore {
            auto store = TcpStore::connect({host, port}, {.token = token, .timeout = time});
            store->set_reply_timeout(request_.heartbeat_timeout);
            return {std::move(store), name(host, port)};
        };
        try {
            if (ports.size() == 1) return reach(ports[0], request_.timeout);
        } catch (const TimeoutError& error) {
            throw TimeoutError(text("rank ", rank(), ": rank 0 is not reachable: ", error.what()));
        } catch (const ArgumentError& error) {
            throw ArgumentError(text("rank ", rank(), ": ", error.what(),
                                     "; another job uses the port, or the tokens differ"));
        }
        while (true) {
            for (const std::uint16_t port : ports) {
                try {
                    return reach(port, std::chrono::milliseconds(200));
                } catch (const Error& error) {
                    if (!deadline_.passed()) continue;
                    throw TimeoutError(text("rank ", rank(),
                                            ": rank 0 is not reachable: no store at the ports ",
                                            ports.front(), " to ", ports.back(), " of ", host, " within ",
                                            duration_text(request_.timeout), " (", error.what(), ")"));
                }
            }
        }
    }

    [[nodiscard]] RendezvousStore by_file() {
        const std::string& path = request_.method.path;
        const std::string job = job_token(request_);
        if (rank() != 0) return by_store(FileStore::join(path, request_.timeout, job), "file://" + path);
        const std::shared_ptr<FileStore> store = FileStore::create(path, job);
        if (!store->replaced().empty()) {
            log(LogLevel::info, 0,
                text("replacing ", path, ", left by an earlier run (", store->replaced(), ")"));
        }
        return by_store(store, "file://" + path);
    }

    /// Rank 0 publishes the endpoint of a TCP store in a store that all ranks can access; all ranks then
    /// use the TCP store.
    [[nodiscard]] RendezvousStore by_store(const std::shared_ptr<Store>& store, std::string where) {
        const std::string key = "dptk/invitation";
        if (rank() == 0) {
            auto [served, endpoint] = StoreServers::get().serve_at_free_port(request_.bind_address);
            const std::string line = endpoint.to_text();
            if (store->compare_and_set(key, "", line) == line) {
                return {std::move(served), std::move(where), key_eraser(store, key)};
            }
        }
        // A second process with rank 0 also connects here; the rendezvous reports the duplicate rank.
        try {
            const StoreEndpoint endpoint = StoreEndpoint::parse(store->get(key, deadline_.left()));
            return {connect_to_endpoint(endpoint, deadline_.left(), request_.heartbeat_timeout),
                    std::move(where)};
        } catch (const TimeoutError& error) {
            throw TimeoutError(
                text("rank ", rank(), ": rank 0 is not reachable through ", where, ": ", error.what()));
        }
    }

    /// Returns an object whose destruction erases the key, so that the store can be used for another
    /// rendezvous.
    [[nodiscard]] static std::shared_ptr<void> key_eraser(const std::shared_ptr<Store>& store,
                                                          const std::string& key) {
        return {store.get(), [store, key](void*) {
                    try {
                        store->erase(key);
                    } catch (const Error&) {
                        // The store has ended, so the key no longer exists.
                    }
                }};
    }

    /// How many ports beside the port of torchrun's agent are tried.
    static constexpr int agent_neighbors = 8;

    const JobRequest& request_;
    Deadline deadline_;
};

DPTK_INLINE RendezvousStore open_rendezvous_store(const JobRequest& request) {
    return RendezvousStoreOpener(request).find();
}

}  // namespace DPTK_NAMESPACE::detail
