#pragma once

#include "dptk/comm/tcp/transport.hpp"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <iterator>
#include <numeric>
#include <type_traits>
#include <utility>

#include "dptk/comm/algorithms/run.hpp"
#include "dptk/comm/call_wait.hpp"
#include "dptk/comm/detail/outer_call.hpp"
#include "dptk/comm/detail/work_error.hpp"
#include "dptk/comm/tcp/mesh.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/net/host.hpp"
#include "dptk/control/net/interface.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/fnv1a.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::unique_ptr<Transport> TcpFactory::make(const TcpOptions& options,
                                                        std::shared_ptr<ControlPlane> control,
                                                        const std::string& address,
                                                        std::vector<int> job_ranks) {
    return std::unique_ptr<Transport>(
        new TcpTransport(options, std::move(control), address, std::move(job_ranks)));
}

[[nodiscard]] DPTK_INLINE std::vector<int> all_ranks(int size) {
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
}

/// Returns the rank, in a group of these ranks of the job, of the rank with this number in the job.
[[nodiscard]] DPTK_INLINE int index_of(int number, const std::vector<int>& ranks) {
    return static_cast<int>(detail::find(ranks, number) - ranks.begin());
}

/// A started message of a group.
template <class Message>
class TcpWork final : public WorkState {
  public:
    TcpWork(std::shared_ptr<TcpMesh> mesh, std::shared_ptr<Message> message, std::vector<int> ranks)
        : mesh_(std::move(mesh)), message_(std::move(message)), ranks_(std::move(ranks)) {}

    bool wait(std::chrono::nanoseconds timeout) override {
        if (!is_done_ && mesh_->wait_for(*message_, timeout)) {
            is_done_ = true;
            error_.set(message_->error);
        }
        return is_done_;
    }

    std::exception_ptr error() override {
        static_cast<void>(wait(std::chrono::nanoseconds(0)));
        return error_.see();
    }

    std::exception_ptr unreported_error() override {
        static_cast<void>(wait(std::chrono::nanoseconds(0)));
        return error_.unseen();
    }

    [[nodiscard]] int source_rank() const override {
        return std::is_same_v<Message, TcpReceive> ? index_of(message_->peer, ranks_) : -1;
    }

  private:
    std::shared_ptr<TcpMesh> mesh_;
    std::shared_ptr<Message> message_;
    std::vector<int> ranks_;
    bool is_done_ = false;
    WorkError error_;
};

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

/// The messages of one collective.
class TcpTransport::CollectiveMessages final : public algorithms::Messages {
  public:
    CollectiveMessages(TcpTransport& transport, const Collective& call) : transport_(transport) {
        const detail::OuterCall* const outer = detail::outer_call;
        const Collective& named = outer != nullptr ? outer->call : call;
        const detail::CallTracker::Call words = detail::PackedCall(named).words();
        call_ = {.group = transport.id_,
                 .call_number = ++transport.calls_,
                 .call_first = words.first,
                 .call_second = words.second,
                 .call_hash = detail::hash_of(named),
                 .tag = detail::collective_message};
        if (!transport.mesh_) return;
        transport.mesh_->begin_call(call_, outer != nullptr ? outer->ranks : std::span<const int>());
    }

    [[nodiscard]] int rank() const override { return transport_.rank(); }
    [[nodiscard]] int size() const override { return transport_.size(); }

    void send(const Buffer& buffer, int to) override {
        detail::TcpSend message = sending(buffer, to);
        transport_.mesh_->run(message);
    }

    void recv(const Buffer& buffer, int from) override {
        detail::TcpReceive message = receiving(buffer, from);
        transport_.mesh_->run(message);
    }

    void exchange(const Buffer& out, const Buffer& in, int partner) override {
        send_and_receive(out, partner, in, partner);
    }

    void shift(const Buffer& out, const Buffer& in) override {
        send_and_receive(out, (rank() + 1) % size(), in, (rank() + size() - 1) % size());
    }

  private:
    void send_and_receive(const Buffer& out, int to, const Buffer& in, int from) {
        detail::TcpReceive received = receiving(in, from);
        detail::TcpSend sent = sending(out, to);
        transport_.mesh_->exchange(sent, received);
    }

    [[nodiscard]] detail::TcpSend sending(const Buffer& buffer, int to) const {
        detail::TcpSend message{{.peer = transport_.number_of(to)}, call_, buffer.data};
        message.header.bytes = buffer.bytes();
        return message;
    }

    [[nodiscard]] detail::TcpReceive receiving(const Buffer& buffer, int from) const {
        detail::TcpReceive message{{.peer = transport_.number_of(from)}, call_, buffer.data};
        message.header.bytes = buffer.bytes();
        return message;
    }

    TcpTransport& transport_;
    detail::TcpHeader call_;
};

DPTK_INLINE std::shared_ptr<detail::TcpMesh> TcpTransport::make_mesh(
    const TcpOptions& options, const std::shared_ptr<detail::ControlPlane>& control,
    const std::string& address, std::vector<int> job_ranks) {
    if (options.size < 1 || options.rank < 0 || options.rank >= options.size)
        throw ArgumentError(detail::text("TCP: invalid rank ", options.rank, " of ", options.size,
                                         ": expected 0 to size - 1"));
    if (options.size == 1) return nullptr;
    if (!options.store)
        throw ArgumentError(
            detail::text("rank ", options.rank, ": TCP needs a store (TcpOptions::store) to connect ranks"));
    detail::TcpMeshOptions mesh{.rank = options.rank,
                                .size = options.size,
                                .store = options.store,
                                .name = options.name,
                                .timeout = options.timeout,
                                .control = control,
                                .job_ranks = std::move(job_ranks)};
    const std::vector<std::string>& hosts = options.hosts;
    if (!options.interface.empty()) {
        mesh.listen_address = detail::choose_address(options.interface);
        mesh.addresses = {mesh.listen_address};
    } else if (!hosts.empty() && detail::count(hosts, hosts[0]) == std::ssize(hosts)) {
        mesh.listen_address = detail::loopback_address();
        mesh.addresses = {mesh.listen_address};
    } else {
        mesh.addresses = detail::own_addresses();
        const auto first = detail::find(mesh.addresses, address);
        if (first != mesh.addresses.end()) std::rotate(mesh.addresses.begin(), first, first + 1);
    }
    return std::make_shared<detail::TcpMesh>(std::move(mesh));
}

DPTK_INLINE TcpTransport::TcpTransport(const TcpOptions& options,
                                       std::shared_ptr<detail::ControlPlane> control,
                                       const std::string& address, std::vector<int> job_ranks)
    : TcpTransport(make_mesh(options, control, address, std::move(job_ranks)), control, options.rank,
                   {options.name, detail::all_ranks(options.size), options.hosts}) {}

DPTK_INLINE TcpTransport::TcpTransport(std::shared_ptr<detail::TcpMesh> mesh,
                                       std::shared_ptr<detail::ControlPlane> control, int rank, Group group)
    : mesh_(std::move(mesh)),
      control_(std::move(control)),
      group_(std::move(group)),
      id_(detail::fnv1a(group_.name)),
      rank_(detail::index_of(rank, group_.ranks)),
      size_(static_cast<int>(group_.ranks.size())) {
    if (!mesh_) return;
    mesh_->open_group(id_, group_.ranks);
    membership_ = {nullptr, [mesh = mesh_, id = id_](void*) { mesh->close_group(id); }};
}

DPTK_INLINE int TcpTransport::local_rank() const {
    return detail::local_place(group_.hosts, rank()).rank;
}

DPTK_INLINE int TcpTransport::local_size() const {
    return detail::local_place(group_.hosts, rank()).size;
}

template <class Operation>
void TcpTransport::run_on_mesh(Operation&& operation) {
    const detail::JobState* const job = control_ ? control_->job_state().get() : detail::job_of_call;
    if (job == nullptr) return operation();
    detail::with_first_cause(*job, operation);
}

DPTK_INLINE void TcpTransport::send(const Buffer& buffer, int to, int tag) {
    detail::TcpSend message = sending(buffer, to, tag);
    run_on_mesh([&] { mesh_->run(message); });
}

DPTK_INLINE void TcpTransport::recv(const Buffer& buffer, int from, int tag) {
    detail::TcpReceive message = receiving(buffer, from, tag);
    run_on_mesh([&] { mesh_->run(message); });
}

DPTK_INLINE int TcpTransport::recv_any(const Buffer& buffer, int tag) {
    detail::TcpReceive message = receiving(buffer, any_rank, tag);
    run_on_mesh([&] { mesh_->run(message); });
    return detail::index_of(message.peer, group_.ranks);
}

DPTK_INLINE std::optional<MessageInfo> TcpTransport::probe(int from, int tag) {
    std::optional<MessageInfo> found;
    const int number = number_of(from);
    run_on_mesh([&] { found = mesh_->find(id_, number, tag); });
    if (found) found->source = detail::index_of(found->source, group_.ranks);
    return found;
}

DPTK_INLINE void TcpTransport::send_recv(const Buffer& out, int to, const Buffer& in, int from, int tag) {
    detail::TcpReceive received = receiving(in, from, tag);
    detail::TcpSend sent = sending(out, to, tag);
    run_on_mesh([&] { mesh_->exchange(sent, received); });
}

DPTK_INLINE std::shared_ptr<WorkState> TcpTransport::start_message(const Message& message) {
    const auto begin = [&](auto message_of_mesh) -> std::shared_ptr<WorkState> {
        using Posted = decltype(message_of_mesh);
        const auto posted = std::make_shared<Posted>(std::move(message_of_mesh));
        mesh_->start(posted);
        return std::make_shared<detail::TcpWork<Posted>>(mesh_, posted, group_.ranks);
    };
    std::shared_ptr<WorkState> work;
    run_on_mesh([&] {
        work = message.verb == Verb::send ? begin(sending(message.buffer, message.peer, message.tag))
                                          : begin(receiving(message.buffer, message.peer, message.tag));
    });
    return work;
}

DPTK_INLINE void TcpTransport::run(const Collective& call) {
    CollectiveMessages messages(*this, call);
    run_on_mesh([&] { algorithms::over_messages(messages, call); });
}

DPTK_INLINE bool TcpTransport::progress() {
    return mesh_ && mesh_->progress();
}

DPTK_INLINE std::unique_ptr<Transport> TcpTransport::duplicate() {
    Group group = group_;
    group.name += detail::text('.', duplicates_++);
    return std::unique_ptr<Transport>(
        new TcpTransport(mesh_, control_, group_.ranks[static_cast<std::size_t>(rank())], std::move(group)));
}

DPTK_INLINE std::unique_ptr<Transport> TcpTransport::subgroup(std::span<const int> ranks,
                                                              std::string_view name) {
    Group group{.name = detail::text(group_.name, '/', name), .ranks = {}, .hosts = {}};
    for (const int member : ranks) {
        group.ranks.push_back(group_.ranks[static_cast<std::size_t>(member)]);
        if (!group_.hosts.empty()) group.hosts.push_back(group_.hosts[static_cast<std::size_t>(member)]);
    }
    return std::unique_ptr<Transport>(
        new TcpTransport(mesh_, control_, group_.ranks[static_cast<std::size_t>(rank())], std::move(group)));
}

DPTK_INLINE detail::TcpSend TcpTransport::sending(const Buffer& buffer, int to, int tag) const {
    if (to < 0 || tag < 0)
        throw ArgumentError(detail::text("rank ", rank(), ": cannot send to rank ", to, " with the tag ", tag,
                                         ": expected 0 or more"));
    return {{.peer = number_of(to)}, {.group = id_, .bytes = buffer.bytes(), .tag = tag}, buffer.data};
}

DPTK_INLINE detail::TcpReceive TcpTransport::receiving(const Buffer& buffer, int from, int tag) const {
    return {{.peer = number_of(from)}, {.group = id_, .bytes = buffer.bytes(), .tag = tag}, buffer.data};
}

DPTK_INLINE int TcpTransport::number_of(int peer) const {
    if (size() == 1 || peer < any_rank || peer >= size() || peer == rank()) {
        throw ArgumentError(detail::text("rank ", rank(), " of ", size(), ": invalid peer ", peer,
                                         ": expected another rank"));
    }
    return peer == any_rank ? any_rank : group_.ranks[static_cast<std::size_t>(peer)];
}

}  // namespace DPTK_NAMESPACE
