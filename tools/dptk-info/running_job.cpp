#include "running_job.hpp"

#include <dptk/control/elastic/membership_keys.hpp>
#include <dptk/control/health/control_plane.hpp>
#include <dptk/control/health/failure_report.hpp>
#include <dptk/control/launch/detail/rendezvous.hpp>
#include <dptk/control/launch/detail/rendezvous_store.hpp>
#include <dptk/control/launch/init_method.hpp>
#include <dptk/control/launch/job_request.hpp>
#include <dptk/control/store/prefix_store.hpp>
#include <dptk/control/store/tcp_store.hpp>
#include <dptk/core/detail/parse.hpp>
#include <dptk/core/detail/text.hpp>

#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "format.hpp"

namespace info {

namespace {

using dptk::detail::ChannelStatus;
using dptk::detail::MembershipKeys;
using dptk::detail::RankStatus;
using dptk::detail::text;

constexpr std::chrono::seconds timeout{3};

/// Takes over the variables of a process that tell where its job is.
void use_environment_of(const std::string& process) {
    std::ifstream file("/proc/" + process + "/environ", std::ios::binary);
    if (!file)
        throw dptk::ArgumentError(
            text("--job ", process, ": there is no such process, or it belongs to another user"));
    for (std::string entry; std::getline(file, entry, '\0');) {
        const std::size_t end = entry.find('=');
        if (end == std::string::npos) continue;
        const std::string name = entry.substr(0, end);
        const auto begins = [&](std::string_view prefix) { return name.starts_with(prefix); };
        if (begins("DPTK_") || begins("MASTER_") || begins("TORCHELASTIC_"))
            setenv(name.c_str(), entry.c_str() + end + 1, 1);
    }
}

std::string address_of(const std::string& job) {
    if (job.find(':') != std::string::npos) return job;
    use_environment_of(job);
    const std::string elastic = dptk::detail::environment_text("DPTK_ELASTIC");
    if (!elastic.empty()) return elastic;
    const std::string host = dptk::detail::environment_text("MASTER_ADDR");
    if (host.empty())
        throw dptk::ArgumentError(text("--job ", job,
                                       ": the process is no rank that dptk-run or torchrun has "
                                       "started, so the address of its job's store is not known"));
    if (dptk::detail::environment_text("TORCHELASTIC_USE_AGENT_STORE") == "True")
        throw dptk::ArgumentError(text("--job ", job,
                                       ": torchrun's agent listens on MASTER_PORT, and rank 0 on "
                                       "one of the eight ports after it: give HOST:PORT of that"));
    return text(host, ':', dptk::detail::environment_text("MASTER_PORT"));
}

/// Connects to an elastic job's store, or to that of another one, whose token is made otherwise.
std::shared_ptr<dptk::TcpStore> connect(const dptk::TcpStoreAddress& address) {
    using dptk::detail::environment_text;
    const std::string token = dptk::detail::environment_token();
    const std::string run = environment_text("DPTK_RUN_ID");
    const auto elastic = [&] {
        return dptk::TcpStore::connect(
            address, {.token = dptk::detail::elastic_token(token, run), .timeout = timeout});
    };
    const auto fixed = [&] {
        setenv("TORCHELASTIC_RUN_ID", run.c_str(), 0);
        setenv("TORCHELASTIC_RESTART_COUNT", "0", 0);
        dptk::JobRequest request{};
        request.token = token;
        return dptk::TcpStore::connect(address,
                                       {.token = dptk::detail::job_token(request), .timeout = timeout});
    };
    const bool is_known = !environment_text("MASTER_ADDR").empty();  // from the rank's process
    if (is_known && environment_text("DPTK_ELASTIC").empty()) return fixed();
    try {
        return elastic();
    } catch (const dptk::ArgumentError&) {
        return fixed();
    }
}

/// Reads the ranks of the job whose keys begin with this prefix.
void read_ranks(dptk::Store& store, RunningJob& job) {
    using dptk::detail::ControlPlane;
    const std::string verdict = store.find(dptk::detail::rendezvous_result_key).value_or("");
    std::string_view lines = verdict;
    if (dptk::detail::next_line(lines) != "ok") return;
    while (!lines.empty()) {
        const auto peer = dptk::detail::PeerInfo::parse(dptk::detail::next_line(lines));
        if (!peer) break;
        RunningRank rank{.process = peer->label};
        const int number = static_cast<int>(job.ranks.size());
        std::optional<std::string> status = store.find(ControlPlane::left_key(number));
        rank.has_left = status.has_value();
        if (!status) status = store.find(ControlPlane::status_key(number));
        if (status) rank.status = dptk::detail::parse_rank_status(*status);
        job.ranks.push_back(std::move(rank));
    }
    if (const auto cause = store.find(ControlPlane::abort_key))
        job.cause = dptk::detail::parse_cause(*cause).text;
}

/// Returns the seconds for each step.
double per_step(std::chrono::microseconds time, std::uint64_t steps) {
    return steps == 0 ? 0 : std::chrono::duration<double>(time).count() / static_cast<double>(steps);
}

std::string state_of(const RunningRank& rank) {
    if (rank.has_left) return "has left its process group";
    return rank.status ? rank.status->describe("0") : "has made no call yet";
}

std::string numbered_ranks(const std::vector<int>& ranks) {
    return text(ranks.size() == 1 ? "rank " : "ranks ", list_text(ranks));
}

}  // namespace

RunningJob read_running_job(const std::string& job) {
    const std::string given = address_of(job);
    dptk::detail::SocketAddress place = dptk::detail::parse_address("--job " + job, given, "HOST:PORT");
    const dptk::TcpStoreAddress address{std::move(place.host), place.port};
    const std::shared_ptr<dptk::TcpStore> store = connect(address);
    RunningJob out{.where = text("tcp://", address.text())};
    std::string prefix;
    if (store->find(MembershipKeys::launchers)) {
        out.generation = dptk::detail::number_of_generation(store->find(MembershipKeys::latest));
        out.over = store->find(MembershipKeys::over).value_or("");
        prefix = MembershipKeys::generation(*out.generation);
    } else {
        prefix = store->find(dptk::detail::running_key).value_or("none");
    }
    dptk::PrefixStore part(store, prefix);
    read_ranks(part, out);
    return out;
}

std::string Wait::text() const {
    return dptk::detail::text(numbered_ranks(waiting), waiting.size() == 1 ? " waits in " : " wait in ", call,
                              " for ", numbered_ranks(missing));
}

std::vector<Wait> find_waits(const RunningJob& job) {
    std::map<std::string, Wait> waits;  // by channel
    const auto each = [&](const auto& look) {
        for (std::size_t rank = 0; rank < job.ranks.size(); ++rank) {
            if (!job.ranks[rank].status || job.ranks[rank].has_left) continue;
            for (const ChannelStatus& channel : job.ranks[rank].status->channels)
                if (channel.hash != 0 || !channel.active) look(static_cast<int>(rank), channel);
        }
    };
    each([&](int, const ChannelStatus& channel) {
        Wait& wait = waits[channel.name];
        if (!channel.active || channel.sequence <= wait.sequence) return;
        wait.sequence = channel.sequence;
        wait.call = channel.call;
    });
    each([&](int rank, const ChannelStatus& channel) {
        Wait& wait = waits[channel.name];
        if (channel.sequence < wait.sequence) {
            wait.missing.push_back(rank);
        } else if (channel.active) {
            wait.waiting.push_back(rank);
        }
    });
    std::vector<Wait> out;
    for (auto& [name, wait] : waits) {
        if (!wait.missing.empty() && !wait.waiting.empty()) out.push_back(std::move(wait));
    }
    return out;
}

/// The last calls of a rank, one in each line.
[[nodiscard]] static std::string calls_text(const RunningJob& job, int number) {
    const RunningRank& rank = job.ranks[static_cast<std::size_t>(number)];
    std::string out;
    for (const ChannelStatus& channel : rank.status->channels) {
        if (channel.calls.empty()) continue;
        out += text("the last calls of rank ", number, " in group ", channel.name, ":\n");
        for (const auto& call : channel.calls) out += text("  ", call.text, '\n');
    }
    return out;
}

std::string to_text(const RunningJob& job) {
    std::string out = text("job at ", job.where);
    if (job.generation) out += text(", elastic, generation ", *job.generation);
    out += text(": ", job.ranks.size(), job.ranks.size() == 1 ? " rank" : " ranks", '\n');
    for (std::size_t i = 0; i < job.ranks.size(); ++i) {
        const RunningRank& rank = job.ranks[i];
        out += text("rank ", i, " (", rank.process, "): ", state_of(rank));
        if (rank.status && rank.status->progress.steps > 0) {
            const dptk::detail::StepProgress& progress = rank.status->progress;
            out += text("; ", progress.steps, " steps, each ",
                        seconds_text(per_step(progress.compute, progress.steps)), " of computation and ",
                        seconds_text(per_step(progress.waiting, progress.steps)), " of waiting");
        }
        out += '\n';
    }
    for (const Wait& wait : find_waits(job)) {
        out += text(wait.text(), '\n', calls_text(job, wait.waiting.front()));
        for (const int rank : wait.missing) out += calls_text(job, rank);
    }
    if (!job.cause.empty()) out += text("the group has failed: ", job.cause, '\n');
    if (!job.over.empty()) out += text("the job has ended: ", job.over, '\n');
    return out;
}

std::string to_json(const RunningJob& job) {
    using nlohmann::ordered_json;
    ordered_json out{{"job", job.where}, {"elastic", job.generation.has_value()}};
    if (job.generation) out["generation"] = *job.generation;
    ordered_json ranks = ordered_json::array();
    for (std::size_t i = 0; i < job.ranks.size(); ++i) {
        const RunningRank& rank = job.ranks[i];
        ordered_json one{{"rank", i}, {"process", rank.process}, {"state", state_of(rank)}};
        if (rank.status) {
            const dptk::detail::StepProgress& progress = rank.status->progress;
            one["steps"] = progress.steps;
            one["compute_seconds"] = per_step(progress.compute, progress.steps);
            one["waiting_seconds"] = per_step(progress.waiting, progress.steps);
            ordered_json calls = ordered_json::array();
            for (const ChannelStatus& channel : rank.status->channels)
                for (const auto& call : channel.calls)
                    calls.push_back({{"group", channel.name}, {"number", call.number}, {"call", call.text}});
            one["calls"] = std::move(calls);
        }
        ranks.push_back(std::move(one));
    }
    out["ranks"] = std::move(ranks);
    out["waits"] = ordered_json::array();
    for (const Wait& wait : find_waits(job))
        out["waits"].push_back({{"call", wait.call}, {"waiting", wait.waiting}, {"missing", wait.missing}});
    out["cause"] = job.cause;
    out["over"] = job.over;
    return out.dump(2);
}

}  // namespace info
