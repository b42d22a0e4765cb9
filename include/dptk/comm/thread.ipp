#pragma once

#include "dptk/comm/thread.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/comm/algorithms/run.hpp"
#include "dptk/comm/registry.hpp"
#include "dptk/comm/shm/settings.hpp"
#include "dptk/comm/thread/elastic_threads.hpp"
#include "dptk/control/health/heartbeat.hpp"
#include "dptk/control/launch/job_request.hpp"
#include "dptk/control/net/host.hpp"
#include "dptk/control/store/prefix_store.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/instruction_set.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE ThreadTransport::ThreadTransport(std::shared_ptr<detail::ThreadHub> hub,
                                             std::shared_ptr<detail::ControlPlane> control)
    : hub_(std::move(hub)), control_(std::move(control)), rank_(control_->rank()) {}

DPTK_INLINE int ThreadTransport::recv_any(const Buffer& buffer, int tag) {
    return complete({Verb::recv, buffer, any_rank, tag});
}

DPTK_INLINE void ThreadTransport::send_recv(const Buffer& out, int to, const Buffer& in, int from, int tag) {
    const std::shared_ptr<WorkState> sent = start_message({Verb::send, out, to, tag});
    try {
        recv(in, from, tag);
    } catch (...) {
        hub_->mailbox().withdraw(*sent);  // the caller may free `out`
        throw;
    }
    Work(sent).wait();
}

DPTK_INLINE std::optional<MessageInfo> ThreadTransport::probe(int from, int tag) {
    return hub_->mailbox().find(rank_, from, tag);
}

DPTK_INLINE std::shared_ptr<WorkState> ThreadTransport::start_message(const Message& message) {
    return hub_->mailbox().post(rank_, message);
}

DPTK_INLINE void ThreadTransport::run(const Collective& call) {
    if (call.algorithm != AllReduceAlgorithm::automatic) return Transport::run(call);
    switch (call.verb) {
        case Verb::all_reduce: return all_reduce(call);
        case Verb::reduce: return reduce(call);
        case Verb::broadcast:
            return run_joint(call, [&](const Calls& calls) {
                if (rank_ != call.root) copy(call.output, call_of(calls, call.root).input);
            });
        case Verb::all_gather:
        case Verb::all_gather_uneven:
            return run_joint(call, [&](const Calls& calls) { collect(calls, call.output); });
        case Verb::gather:
            return run_joint(call, [&](const Calls& calls) {
                if (rank_ == call.root) collect(calls, call.output);
            });
        case Verb::scatter:
            return run_joint(call, [&](const Calls& calls) {
                const std::size_t count = call.output.count;
                take(call.output, call_of(calls, call.root).input.slice(own_offset(count), count));
            });
        case Verb::reduce_scatter: return reduce_scatter(call);
        case Verb::all_to_all: return all_to_all(call);
        case Verb::all_to_all_uneven: return all_to_all_uneven(call);
        default: return run_joint({}, [](const Calls&) {});
    }
}

DPTK_INLINE void ThreadTransport::all_reduce(const Collective& call) {
    const Buffer& data = call.output;
    algorithms::place(data, call.input);
    Collective in_place = call;
    in_place.input = data;
    run_joint(in_place, [&](const Calls& calls) {
        const std::size_t first = slice_begin(rank_, data.count);
        const std::size_t count = slice_begin(rank_ + 1, data.count) - first;
        results_.clear();
        for (const Collective& other : calls) results_.push_back(other.output.slice(first, count).data);
        reduce_slice(calls, first, data.slice(first, count), call.reduction, results_);
    });
}

DPTK_INLINE void ThreadTransport::reduce(const Collective& call) {
    if (rank_ == call.root) algorithms::place(call.output, call.input);
    Collective in_place = call;
    in_place.input = in_place.output = rank_ == call.root ? call.output : call.input;
    run_joint(in_place, [&](const Calls& calls) {
        const std::size_t first = slice_begin(rank_, call.input.count);
        const std::size_t count = slice_begin(rank_ + 1, call.input.count) - first;
        void* const result = call_of(calls, call.root).output.slice(first, count).data;
        reduce_slice(calls, first, call.input.slice(first, count), call.reduction, {&result, 1});
    });
}

DPTK_INLINE void ThreadTransport::reduce_scatter(const Collective& call) {
    const Buffer& output = call.output;
    const std::size_t first = own_offset(output.count);
    // Other ranks read the input concurrently, except this rank's own part.
    const bool is_read =
        detail::overlap(call.input, output) && output.data != call.input.slice(first, 0).data;
    const algorithms::Scratch apart(output.slice(0, is_read ? output.count : 0));
    const Buffer& result = is_read ? apart.buffer() : output;
    run_joint(call, [&](const Calls& calls) {
        reduce_slice(calls, first, output, call.reduction, {&result.data, 1});
    });
    take(output, result);
}

DPTK_INLINE void ThreadTransport::all_to_all(const Collective& call) {
    run_joint(call, [&](const Calls& calls) {
        const std::size_t count = call.input.count / calls.size();
        for (std::size_t i = 0; i < calls.size(); ++i)
            copy(call.output.slice(i * count, count), calls[i].input.slice(own_offset(count), count));
    });
}

DPTK_INLINE void ThreadTransport::all_to_all_uneven(const Collective& call) {
    run_joint(call, [&](const Calls& calls) {
        const auto own = static_cast<std::size_t>(rank_);
        std::size_t to = 0;
        for (const Collective& sender : calls) {
            std::size_t from = 0;
            for (const std::size_t before : sender.counts.first(own)) from += before;
            copy(call.output.slice(to, sender.counts[own]), sender.input.slice(from, sender.counts[own]));
            to += sender.counts[own];
        }
    });
}

DPTK_INLINE std::unique_ptr<Transport> ThreadTransport::duplicate() {
    run_joint({.verb = Verb::duplicate}, [](const Calls&) {});
    return std::unique_ptr<Transport>(new ThreadTransport(
        hub_->subgroup_hub(detail::text("duplicate ", duplicates_++), size()), control_, rank_));
}

DPTK_INLINE std::shared_ptr<void> ThreadTransport::allocate(std::size_t bytes) {
    std::shared_ptr<void> own = detail::allocate_aligned(bytes);
    const auto parts = std::make_shared<Parts>();
    parts->bytes = bytes;
    Collective call = detail::allocation_call(bytes);
    call.output.data = &own;  // for the other ranks, while they are in this call
    run_joint(call, [&](const Calls& calls) {
        for (const Collective& of_rank : calls)
            parts->memory.push_back(*static_cast<const std::shared_ptr<void>*>(of_rank.output.data));
    });
    std::erase_if(allocations_, [](const auto& allocation) { return allocation.expired(); });
    allocations_.push_back(parts);
    return {parts, own.get()};
}

DPTK_INLINE std::vector<void*> ThreadTransport::peer_memory(const Buffer& buffer) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(buffer.data);
    for (const std::weak_ptr<const Parts>& allocation : allocations_) {
        const std::shared_ptr<const Parts> parts = allocation.lock();
        if (!parts) continue;
        const void* const memory = parts->memory[static_cast<std::size_t>(rank_)].get();
        const auto own = reinterpret_cast<std::uintptr_t>(memory);
        if (begin < own || begin + buffer.bytes() > own + parts->bytes) continue;
        std::vector<void*> addresses;
        for (const std::shared_ptr<void>& part : parts->memory)
            addresses.push_back(static_cast<std::byte*>(part.get()) + (begin - own));
        return addresses;
    }
    return {};
}

DPTK_INLINE std::unique_ptr<Transport> ThreadTransport::subgroup(std::span<const int> ranks,
                                                                 std::string_view name) {
    const auto position = detail::find(ranks, rank_) - ranks.begin();
    return std::unique_ptr<Transport>(new ThreadTransport(
        hub_->subgroup_hub(name, static_cast<int>(ranks.size())), control_, static_cast<int>(position)));
}

DPTK_INLINE ThreadTransport::ThreadTransport(std::shared_ptr<detail::ThreadHub> hub,
                                             std::shared_ptr<detail::ControlPlane> control, int rank)
    : hub_(std::move(hub)), control_(std::move(control)), rank_(rank) {}

DPTK_INLINE int ThreadTransport::complete(const Message& message) {
    Work work(start_message(message));
    work.wait();
    return work.source_rank();
}

DPTK_INLINE std::string ThreadTransport::find_difference() const {
    const std::vector<Collective>& calls = hub_->calls();
    for (std::size_t other = 1; other < calls.size(); ++other) {
        if (!agree(calls[0], calls[other])) {
            return detail::text("rank ", other, " calls ", describe(calls[other]), " where rank 0 calls ",
                                describe(calls[0]));
        }
    }
    if (calls[0].verb != Verb::all_to_all_uneven) return {};
    for (std::size_t from = 0; from < calls.size(); ++from) {
        for (std::size_t to = 0; to < calls.size(); ++to) {
            if (calls[from].counts[to] != calls[to].output_counts[from])
                return detail::text("all_to_all_uneven: rank ", from, " sends ", calls[from].counts[to],
                                    " elements to rank ", to, ", which expects ",
                                    calls[to].output_counts[from]);
        }
    }
    return {};
}

DPTK_INLINE std::size_t ThreadTransport::slice_begin(int slice, std::size_t count) const noexcept {
    const auto parts = static_cast<std::size_t>(size());
    return count / parts * static_cast<std::size_t>(slice) +
           std::min(count % parts, static_cast<std::size_t>(slice));
}

DPTK_INLINE void ThreadTransport::reduce_slice(const Calls& calls, std::size_t first, const Buffer& slice,
                                               const Reduction& reduction, std::span<void* const> results) {
    sources_.clear();
    for (const Collective& call : calls) sources_.push_back(call.input.slice(first, slice.count).data);
    detail::reduce_together({sources_, results, slice.count, static_cast<double>(calls.size())}, slice,
                            slice.dtype, reduction);
}

DPTK_INLINE const Collective& ThreadTransport::call_of(const Calls& calls, int rank) {
    return calls[static_cast<std::size_t>(rank)];
}

DPTK_INLINE std::size_t ThreadTransport::own_offset(std::size_t count) const noexcept {
    return static_cast<std::size_t>(rank_) * count;
}

DPTK_INLINE void ThreadTransport::collect(const Calls& calls, const Buffer& output) {
    std::size_t first = 0;
    for (const Collective& call : calls) {
        take(output.slice(first, call.input.count), call.input);
        first += call.input.count;
    }
}

DPTK_INLINE void ThreadTransport::take(const Buffer& to, const Buffer& from) {
    if (to.data != from.data) copy(to, from);
}

DPTK_INLINE void ThreadTransport::copy(const Buffer& to, const Buffer& from) {
    if (from.bytes() != 0) std::memcpy(to.data, from.data, from.bytes());
}

}  // namespace DPTK_NAMESPACE

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::chrono::milliseconds timeout_of(const ThreadOptions& options) {
    return options.timeout ? *options.timeout : environment_seconds("DPTK_TIMEOUT").value_or(default_timeout);
}

DPTK_INLINE ThreadJob::ThreadJob(int size_, const ThreadOptions& options)
    : size(size_),
      timeout(timeout_of(options)),
      job_state(
          std::make_shared<JobState>(options.elastic ? JobState::Kind::elastic : JobState::Kind::fixed)) {
    check_own_settings();
    check_instruction_limit();
}

DPTK_INLINE ThreadTransport ThreadJob::transport(int rank) const {
    return {hub,
            ControlPlane::make({.rank = rank, .size = size, .store = store, .timeout = timeout}, job_state)};
}

/// The ranks that are threads of this process.
struct ThreadRanks {
    int first;
    int count;
    std::shared_ptr<JobState> job_state;
    /// Throws if the threads of this process, or of another one, could not be started.
    std::function<void(const std::string& problem)> check_start;
    /// Returns a rank's group. Called on the rank's thread.
    std::function<ProcessGroup(int rank)> connect;
};

/// How long the ranks have to end after an exception, before it is logged.
inline constexpr std::chrono::milliseconds end_delay{1000};

/// Runs `fn` in each rank. Throws the first exception that is not a PeerLostError or, if no other exists, the
/// first PeerLostError. An exception fails the job, unless it is an agreed error.
DPTK_INLINE void run_ranks(const ThreadRanks& ranks, const std::function<void(ProcessGroup&)>& fn) {
    std::mutex mutex;
    std::condition_variable changed;
    std::exception_ptr cause;
    std::exception_ptr consequence;
    std::vector<int> running;  // the ranks whose threads have not ended
    for (int i = 0; i < ranks.count; ++i) running.push_back(ranks.first + i);

    const auto run_rank = [&](int rank) {
        std::optional<ProcessGroup> group;  // destroyed after the rank's failure is recorded
        const auto record = [&](std::exception_ptr& first) {
            const std::lock_guard lock(mutex);
            if (!first) first = std::current_exception();
        };
        AgreedErrors agreed_errors;  // not read: no group is destroyed while the exception unwinds
        try {
            try {
                group.emplace(ranks.connect(rank));
                fn(*group);
            } catch (...) {
                rethrow_after_report(*ranks.job_state, agreed_errors, rank);
            }
        } catch (const PeerLostError&) {
            record(consequence);
        } catch (...) {
            record(cause);
        }
        group.reset();
        const std::lock_guard lock(mutex);
        detail::erase_if(running, [&](int other) { return other == rank; });
        changed.notify_all();
    };
    // A rank that hangs outside dptk would keep the exception of another rank from being seen.
    const auto report_if_stuck = [&] {
        std::unique_lock lock(mutex);
        const auto all_ended = [&] { return running.empty(); };
        changed.wait(lock, [&] { return all_ended() || ranks.job_state->failed(); });
        if (changed.wait_for(lock, end_delay, all_ended) || !ranks.job_state->failed()) return;
        std::string list;
        for (const int rank : running) list += text(list.empty() ? "" : ", rank ", rank);
        log(LogLevel::error, ranks.first,
            text(ranks.job_state->cause(), "; launch_threads waits for rank ", list,
                 ", since a thread cannot be ended"));
        ranks.job_state->mark_logged();
    };

    std::promise<bool> decision;  // whether the threads run their ranks
    const std::shared_future<bool> is_started = decision.get_future().share();
    {
        std::vector<std::jthread> threads;
        std::string problem;
        try {
            for (int i = 0; i < ranks.count; ++i)
                threads.emplace_back([&, i] {
                    if (is_started.get()) run_rank(ranks.first + i);
                });
        } catch (const std::exception& error) {
            problem =
                text("thread ", threads.size(), " of ", ranks.count, " could not be started: ", error.what());
        }
        try {
            ranks.check_start(problem);
        } catch (...) {
            decision.set_value(false);
            throw;
        }
        decision.set_value(true);
        report_if_stuck();
    }
    if (cause) std::rethrow_exception(cause);
    if (consequence) std::rethrow_exception(consequence);
}

[[nodiscard]] DPTK_INLINE std::string launch_problem(int size) {
    return size < 1 ? text("launch_threads with ", size, " ranks: expected at least 1") : "";
}

DPTK_INLINE void run_as_threads(int size, const std::function<void(ProcessGroup&)>& fn,
                                const ThreadOptions& options) {
    if (const std::string problem = launch_problem(size); !problem.empty()) throw ArgumentError(problem);
    if (options.elastic) return run_as_elastic_threads(size, fn, options);
    const ThreadJob job(size, options);
    const auto check_start = [](const std::string& problem) {
        if (!problem.empty()) throw Error(problem);
    };
    const auto connect = [&](int rank) -> ProcessGroup { return ThreadCommunicator(job.transport(rank)); };
    run_ranks({0, size, job.job_state, check_start, connect}, fn);
}

/// The ranks of all processes, which are their threads.
struct ConnectedThreads {
    int first = 0;                    ///< The first rank of this process.
    std::vector<std::string> hosts;   ///< By rank.
    std::vector<std::string> labels;  ///< The process of each rank, for messages.
    ChannelIdentity identity;

    /// `size` is the number of ranks of this process. Collective.
    ConnectedThreads(ProcessGroup& processes, int size, std::chrono::milliseconds timeout) {
        const std::vector<int> sizes = processes.all_gather_value(size);
        const std::vector<std::string> all_hosts = all_gather_text(processes, host_identity());
        const std::vector<std::string> all_labels = all_gather_text(processes, process_label());
        std::vector<int> members, ranks;
        for (std::size_t process = 0; process < sizes.size(); ++process) {
            if (static_cast<int>(process) == processes.rank()) first = static_cast<int>(ranks.size());
            members.push_back(static_cast<int>(process));
            for (int i = 0; i < sizes[process]; ++i) {
                ranks.push_back(static_cast<int>(ranks.size()));
                hosts.push_back(all_hosts[process]);
                labels.push_back(all_labels[process]);
            }
        }
        identity = processes.engine().next_identity(members, timeout);
        identity.ranks = std::move(ranks);
    }
};

/// Returns the transport between threads of several processes: Gloo if that connects the processes, or if the
/// program has only Gloo, otherwise TCP. Returns null if the program has neither.
[[nodiscard]] DPTK_INLINE const TransportEntry* find_transport_of_threads(
    const std::vector<TransportEntry>& entries, std::string_view backend) {
    const TransportEntry* const tcp = find_transport(entries, "tcp");
    return tcp != nullptr && backend != "gloo" ? tcp : find_transport(entries, "gloo");
}

DPTK_INLINE void run_as_threads(ProcessGroup& processes, int size,
                                const std::function<void(ProcessGroup&)>& fn, const ThreadOptions& options) {
    const PurposeScope here(processes.engine(), {.call = "launch_threads()", .owner = "ProcessGroup"});
    const std::chrono::milliseconds timeout = options.timeout.value_or(processes.engine().identity().timeout);
    const std::shared_ptr<ControlPlane>& control = processes.engine().control();
    const std::vector<TransportEntry> entries = registered_transports();
    const TransportEntry* const transport = find_transport_of_threads(entries, processes.backend());
    std::string problem = launch_problem(size);
    if (problem.empty() && options.elastic)
        problem = "launch_threads in several processes does not support ThreadOptions::elastic";
    if (problem.empty() && processes.size() > 1) {
        if (transport == nullptr)
            problem = "launch_threads in several processes needs TCP: include <dptk/comm/tcp.hpp>";
        else if (!control->has_store())
            problem =
                "launch_threads in several processes needs a control plane with a store, which the "
                "transport " +
                processes.backend() + " does not have in this job";
    }
    check_no_problem<ArgumentError>(processes, problem);
    check_equal_tables(processes, "threads", text("timeout ", duration_text(timeout)));
    if (processes.size() == 1) return run_as_threads(size, fn, {.timeout = timeout});

    const ConnectedThreads threads(processes, size, timeout);
    const auto check_start = [&](const std::string& own_problem) {
        check_no_problem<Error>(processes, own_problem);
    };
    const auto connect = [&](int rank) -> ProcessGroup {
        const auto store = std::make_shared<PrefixStore>(control->store()->clone(), threads.identity.name);
        // The heartbeats of `processes` detect lost processes; those of the threads publish their calls.
        const std::shared_ptr<ControlPlane> own =
            join_control_plane({.rank = rank,
                                .size = static_cast<int>(threads.hosts.size()),
                                .store = store,
                                .timeout = timeout,
                                .peers = threads.labels,
                                .network_interface = control->network_interface()},
                               control->job_state(), timeout);
        EngineOwner engine;
        own->fail_job_on_error([&] {
            engine = transport->create_subgroup({rank, threads.hosts, threads.identity, own});
        });
        return ProcessGroup(std::move(engine));
    };
    try {
        run_ranks({threads.first, size, control->job_state(), check_start, connect}, fn);
    } catch (const Error& error) {
        if (error.agreed()) control->agreed_errors().note(error);  // `processes` stays usable
        throw;
    }
}

}  // namespace DPTK_NAMESPACE::detail
