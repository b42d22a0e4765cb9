#pragma once

#include "dptk/control/launch/detail/rendezvous_store.hpp"

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "dptk/control/launch/detail/slurm.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/control/process/random_word.hpp"
#include "dptk/control/store/detail/served_store.hpp"
#include "dptk/control/store/file_store.hpp"
#include "dptk/control/store/tcp_store.hpp"
#include "dptk/core/detail/fnv1a.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

/// What tells this job from others that come to the same port: the user's token, and the launcher's name for
/// the run, as far as there is one.
[[nodiscard]] DPTK_INLINE std::string job_token(const JobRequest& request) {
    std::string out = request.token;
    for (const char* variable : {"DPTK_RUN_ID", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}) {
        out += "/" + environment_text(variable);
    }
    if (request.method.meeting == Meeting::slurm) {
        out += text('/', environment_text("SLURM_JOB_ID"), '.', environment_text("SLURM_STEP_ID"));
    }
    return out.size() <= max_store_token_bytes ? out : text(fnv1a(out));
}

class RendezvousStoreOpener {
  public:
    explicit RendezvousStoreOpener(const JobRequest& request)
        : request_(request), deadline_(request.timeout) {}

    [[nodiscard]] RendezvousStore find() {
        switch (request_.method.meeting) {
            case Meeting::tcp: return at_port(request_.method.host, {request_.method.port});
            case Meeting::env: return by_environment();
            case Meeting::slurm: return by_slurm();
            case Meeting::file: return by_file();
            case Meeting::none:
            case Meeting::mpi: break;
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
        // torchrun's agent itself listens on the port; the next ones that are free serve.
        std::vector<std::uint16_t> ports;
        for (int next = 1; next <= agent_neighbours; ++next) {
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

    /// A store at the first port that is free, served by rank 0.
    [[nodiscard]] RendezvousStore at_port(const std::string& host, const std::vector<std::uint16_t>& ports) {
        const std::string token = job_token(request_);
        RendezvousStore place;
        if (rank() == 0) place = serve(host, ports, token);
        const bool serves = place.store != nullptr;
        if (!serves) place = connect(host, ports, token);
        enter(place, serves);
        return place;
    }

    /// A job may meet, part, and meet again at one place, each time in a room of its own that rank 0 names.
    void enter(RendezvousStore& place, bool serves) {
        const std::string key = "room";
        std::string room = random_word();
        if (serves) {
            place.store->set(key, room);
            place.keep_alive = withdrawal_of(place.store, key);
        } else {
            try {
                room = place.store->get(key, deadline_.left());
            } catch (const TimeoutError&) {
                throw TimeoutError(text("rank ", rank(), ": rank 0 serves a store at ", place.where,
                                        ", but waits for nobody there: its ranks have met already"));
            }
        }
        place.store = std::make_shared<PrefixStore>(place.store, room);
    }

    [[nodiscard]] std::string name(const std::string& host, std::uint16_t port) const {
        return "tcp://" + TcpStoreAddress{host, port}.text();
    }

    /// Nothing where another process of this job serves already: the rendezvous then tells who has rank 0
    /// twice.
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
                problem += ", a dptk job of another name or token";
            } catch (const Error&) {
                // Some other program.
            }
        }
        throw ArgumentError(text("rank 0 cannot serve the store of its job: ", problem,
                                 "; choose another port, by MASTER_PORT or in the init_method"));
    }

    /// Where the others come by the loopback interface, nobody else needs to reach the store.
    [[nodiscard]] std::string bind_address(const std::string& host) const {
        if (!request_.bind_address.empty()) return request_.bind_address;
        const bool loopback = host == "localhost" || host == "::1" || host.starts_with("127.");
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
            throw TimeoutError(text("rank ", rank(), ": rank 0 is not there: ", error.what()));
        } catch (const ArgumentError& error) {
            throw ArgumentError(text("rank ", rank(), ": ", error.what(),
                                     "; another job uses the port, or the token is another"));
        }
        while (true) {
            for (const std::uint16_t port : ports) {
                try {
                    return reach(port, std::chrono::milliseconds(200));
                } catch (const Error& error) {
                    if (!deadline_.passed()) continue;
                    throw TimeoutError(text("rank ", rank(), ": rank 0 is not there: no store at the ports ",
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
                text("replaces ", path, ", left behind by an earlier run (", store->replaced(), ")"));
        }
        return by_store(store, "file://" + path);
    }

    /// Rank 0 leaves an invitation in a store that all reach; from then on they talk by TCP.
    [[nodiscard]] RendezvousStore by_store(const std::shared_ptr<Store>& store, std::string where) {
        const std::string key = "dptk/invitation";
        if (rank() == 0) {
            auto [served, invitation] = StoreServers::get().invite(request_.bind_address);
            const std::string line = invitation.to_text();
            if (store->compare_and_set(key, "", line) == line) {
                return {std::move(served), std::move(where), withdrawal_of(store, key)};
            }
        }
        // A second process that takes itself for rank 0 learns its mistake at the rendezvous.
        try {
            const StoreEndpoint invitation = StoreEndpoint::parse(store->get(key, deadline_.left()));
            return {connect_to_endpoint(invitation, deadline_.left(), request_.heartbeat_timeout),
                    std::move(where)};
        } catch (const TimeoutError& error) {
            throw TimeoutError(
                text("rank ", rank(), ": rank 0 is not there, by ", where, ": ", error.what()));
        }
    }

    /// Erases what has led the others here, when all have met: the store may serve for another meeting.
    [[nodiscard]] static std::shared_ptr<void> withdrawal_of(const std::shared_ptr<Store>& store,
                                                             const std::string& key) {
        return {store.get(), [store, key](void*) {
                    try {
                        store->erase(key);
                    } catch (const Error&) {
                        // It is gone, and what it held with it.
                    }
                }};
    }

    /// How many ports beside the agent's are tried.
    static constexpr int agent_neighbours = 8;

    const JobRequest& request_;
    Deadline deadline_;
};

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE RendezvousStore open_rendezvous_store(const JobRequest& request) {
    return RendezvousStoreOpener(request).find();
}

}  // namespace DPTK_NAMESPACE::detail
