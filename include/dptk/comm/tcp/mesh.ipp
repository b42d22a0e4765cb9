#pragma once

#include "dptk/comm/tcp/mesh.hpp"

#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "dptk/comm/call_wait.hpp"
#include "dptk/comm/detail/yield_briefly.hpp"
#include "dptk/comm/tcp/farewell.hpp"
#include "dptk/control/process/background_thread.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/control/process/random_word.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/errno_text.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

[[nodiscard]] DPTK_INLINE Word128 parse_key(std::string_view digits) {
    constexpr std::size_t half = 16;
    Word128 key{};
    for (std::size_t i = 0; i < key.size(); ++i) {
        const std::string_view part = digits.substr(std::min(i * half, digits.size()), half);
        const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), key[i], 16);
        if (error != std::errc{} || end != digits.data() + (i + 1) * half)
            throw BackendError(
                text("the store has no valid key for connections: expected 32 hexadecimal digits, got ",
                     digits.size(), " characters"));
    }
    return key;
}

// ---- creation and destruction

DPTK_INLINE TcpMesh::TcpMesh(TcpMeshOptions options)
    : options_(std::move(options)),
      wakes_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      connector_(events_, options_.listen_address, options_.timeout,
                 {.open = [this](int rank, Socket socket) { open(peer(rank), std::move(socket)); },
                  .is_closed_to = [this](int rank) { return peer(rank).connection || peer(rank).has_left; },
                  .lose = [this](int rank, const std::string& problem) { refuse(peer(rank), problem); },
                  .give_up =
                      [this](int rank, const std::string& problem) {
                          if (!peer(rank).unsent.empty()) throw TimeoutError(problem);
                      },
                  .label = [this](int rank) { return label(rank); }}),
      workspace_(std::size_t{16} << 10) {
    if (!wakes_.is_open()) throw BackendError(text("eventfd: ", errno_text(errno)));
    events_.add(wakes_.number(), EPOLLIN, {TcpEvent::Kind::wake});
    for (int rank = 0; rank < options_.size; ++rank) peers_.push_back(std::make_unique<Peer>(*this, rank));
    publish();
}

DPTK_INLINE TcpMesh::~TcpMesh() {
    {
        const std::lock_guard lock(mutex_);
        is_stopping_ = true;
        wake_leader();
        started_changed_.notify_all();
    }
    if (background_.joinable()) background_.join();
    // The memory of messages that are abandoned must not be used any more.
    if (detail::any_of(started_, [](const auto& message) { return !message->is_done; }))
        break_all(std::make_exception_ptr(PeerLostError("a started message was abandoned")));
    std::vector<TcpConnection> connections;
    for (const std::unique_ptr<Peer>& other : peers_) {
        if (!other->connection) continue;
        events_.remove(other->connection->socket().number());
        other->connection->push({.kind = TcpKind::goodbye});
        connections.push_back(std::move(*other->connection));
    }
    // Ranks of a job that has failed wait for nothing more, and some may be out of reach.
    if (options_.control && options_.control->job_state()->failed()) {
        for (TcpConnection& connection : connections) static_cast<void>(connection.flush());
    } else {
        TcpFarewell::begin(std::move(connections), options_.timeout);
    }
}

DPTK_INLINE std::string TcpMesh::label(int rank) const {
    return options_.control ? options_.control->label(job_rank(rank)) : text("rank ", rank);
}

DPTK_INLINE int TcpMesh::job_rank(int rank) const {
    return options_.job_ranks.empty() ? rank : options_.job_ranks[static_cast<std::size_t>(rank)];
}

DPTK_INLINE std::string TcpMesh::key(std::string_view name) const {
    return text(options_.name, '/', name);
}

DPTK_INLINE void TcpMesh::publish() {
    Store& store = *options_.store;
    connector_.set_identity({.key = parse_key(store.compare_and_set(key("key"), "", random_word())),
                             .rank = options_.rank,
                             .size = options_.size});
    store.set(key(text("rank/", options_.rank)),
              TcpAddresses{connector_.port(), options_.addresses}.to_value());
}

DPTK_INLINE void TcpMesh::await_addresses(int rank) {
    constexpr std::chrono::milliseconds slice{200};
    std::shared_ptr<JobState> job;
    {
        const std::lock_guard lock(mutex_);
        watch_job();
        job = job_;
        const Peer& of = peer(rank);
        if (broken_ || of.connection || of.has_left || of.addresses) return;
    }
    const Deadline deadline(options_.timeout);
    while (true) {
        try {
            return set_addresses(
                rank, options_.store->get(key(text("rank/", rank)), std::min(slice, deadline.left())));
        } catch (const TimeoutError&) {
            if (job) job->check();
            if (deadline.passed())
                throw TimeoutError(text("rank ", options_.rank, ": connecting: ", label(rank),
                                        " has not published its address within ",
                                        duration_text(options_.timeout)));
            static_cast<void>(progress());
        }
    }
}

DPTK_INLINE bool TcpMesh::find_addresses(int rank) {
    const std::optional<std::string> published = options_.store->find(key(text("rank/", rank)));
    if (published) set_addresses(rank, *published);
    return published.has_value();
}

DPTK_INLINE void TcpMesh::set_addresses(int rank, std::string_view published) {
    std::optional<TcpAddresses> addresses = TcpAddresses::from_value(published);
    if (!addresses)
        throw BackendError(text("rank ", options_.rank,
                                ": connecting: expected the port and the addresses of ", label(rank),
                                " in the store, got \"", published, '"'));
    const std::lock_guard lock(mutex_);
    peer(rank).addresses = std::move(addresses);
}

// ---- groups

DPTK_INLINE void TcpMesh::open_group(GroupId id, std::vector<int> ranks) {
    const std::lock_guard lock(mutex_);
    group(id).ranks = std::move(ranks);
}

DPTK_INLINE TcpGroup& TcpMesh::group(GroupId id) {
    return groups_.try_emplace(id, options_.rank).first->second;
}

DPTK_INLINE void TcpMesh::begin_call(const TcpHeader& call, std::span<const int> names) {
    const std::lock_guard lock(mutex_);
    TcpGroup& in = group(call.group);
    in.call = call;
    in.names.assign(names.begin(), names.end());
}

DPTK_INLINE void TcpMesh::close_group(GroupId id) noexcept {
    const std::lock_guard lock(mutex_);
    const auto entry = groups_.find(id);
    if (entry == groups_.end() || entry->second.is_closed) return;
    TcpGroup& group = entry->second;
    group.is_closed = true;
    try {
        for (const TcpGroup::Arrived& arrived : group.arrived) {
            Peer& from = peer(arrived.from);
            if (from.storing == &arrived) {
                from.storing = nullptr;
                from.connection->redirect(nullptr);
            } else if (arrived.header.kind == TcpKind::message) {
                return_credit(from, arrived.header);
            }
        }
        group.arrived.clear();
        group.left.clear();
        for (TcpReceive* const message : group.wanted)
            message->complete(std::make_exception_ptr(PeerLostError("the group has been closed")));
        group.wanted.clear();
        for (const int rank : group.ranks) {
            Peer& other = peer(rank);
            if (!other.connection) continue;
            other.connection->push({.group = id, .kind = TcpKind::leave});
            flush(other);
        }
    } catch (const std::exception&) {
        break_all(std::current_exception());
    }
}

// ---- messages

DPTK_INLINE void TcpMesh::run(TcpSend& message) {
    await_addresses(message.peer);
    std::unique_lock lock(mutex_);
    post(message);
    wait(lock, message, Clock::time_point::max());
    check(message);
}

DPTK_INLINE void TcpMesh::run(TcpReceive& message) {
    std::unique_lock lock(mutex_);
    post(message);
    wait(lock, message, Clock::time_point::max());
    check(message);
}

DPTK_INLINE void TcpMesh::exchange(TcpSend& sent, TcpReceive& received) {
    await_addresses(sent.peer);
    std::unique_lock lock(mutex_);
    post(received);
    post(sent);
    wait(lock, received, Clock::time_point::max());
    if (received.error) break_all(received.error);  // otherwise the other rank may never receive
    wait(lock, sent, Clock::time_point::max());
    check(received);
    check(sent);
}

DPTK_INLINE void TcpMesh::start(const std::shared_ptr<TcpSend>& message) {
    await_addresses(message->peer);
    const std::lock_guard lock(mutex_);
    keep_started(message);
    post(*message);
}

DPTK_INLINE void TcpMesh::start(const std::shared_ptr<TcpReceive>& message) {
    const std::lock_guard lock(mutex_);
    keep_started(message);
    post(*message);
}

DPTK_INLINE bool TcpMesh::wait_for(TcpOperation& message, std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    const bool for_ever = timeout == std::chrono::nanoseconds::max();
    return wait(lock, message, for_ever ? Clock::time_point::max() : Clock::now() + timeout);
}

DPTK_INLINE void TcpMesh::check(const TcpOperation& message) {
    if (message.error) std::rethrow_exception(message.error);
}

template <class Message>
void TcpMesh::post(Message& message) {
    if (broken_) return message.complete(broken_);
    try {
        deliver(message);
    } catch (const std::exception&) {
        break_all(std::current_exception());
        if (!message.is_done) message.complete(broken_);
    }
    wake_leader();  // this thread may have completed its message
}

DPTK_INLINE void TcpMesh::deliver(TcpSend& message) {
    Peer& to = peer(message.peer);
    if (is_lost(group(message.header.group), message.peer)) return message.complete(lost(message.peer));
    if (to.connection) {
        send(to, message);
        return flush(to);
    }
    to.unsent.push_back(&message);
    connect(to);
}

DPTK_INLINE void TcpMesh::send(Peer& to, TcpSend& message) {
    const std::size_t early_bytes = sizeof(TcpHeader) + message.header.bytes;
    if (message.header.bytes <= max_early_bytes && early_bytes <= to.credit) {
        to.credit -= early_bytes;
        message.header.kind = TcpKind::message;
        return to.connection->push(message.header, message.data, &message);
    }
    message.header.kind = TcpKind::request;
    message.header.id = next_request_++;
    requested_.emplace(message.header.id, &message);
    to.connection->push(message.header);
}

DPTK_INLINE void TcpMesh::deliver(TcpReceive& message) {
    TcpGroup& in = group(message.header.group);
    if (take_arrived(in, message)) return;
    if (is_lost(in, message.peer)) return message.complete(lost(message.peer));
    in.wanted.push_back(&message);
}

DPTK_INLINE bool TcpMesh::take_arrived(TcpGroup& group, TcpReceive& message) {
    const auto found = group.find_arrived(message);
    if (found == group.arrived.end()) return false;
    Peer& from = peer(found->from);
    const TcpHeader header = found->header;
    std::exception_ptr problem = group.mismatch(from.rank, header, message);
    message.peer = from.rank;
    if (header.kind == TcpKind::request) {
        problem ? message.complete(std::move(problem)) : grant(from, header, message);
    } else if (problem || from.storing != &*found) {
        if (!problem && header.bytes != 0) std::memcpy(message.data, found->data.get(), header.bytes);
        if (from.storing == &*found) {
            from.storing = nullptr;
            from.connection->redirect(nullptr);
        } else {
            return_credit(from, header);
        }
        message.complete(std::move(problem));
    } else {  // its data is still arriving
        const std::size_t arrived = from.connection->arrived();
        auto* const data = static_cast<std::byte*>(message.data);
        std::memcpy(data, found->data.get(), arrived);
        from.storing = nullptr;
        from.receiving = &message;
        from.connection->redirect(data + arrived);
    }
    group.arrived.erase(found);
    if (from.connection) flush(from);
    return true;
}

DPTK_INLINE void TcpMesh::grant(Peer& to, const TcpHeader& request, TcpReceive& message) {
    if (!to.connection) return message.complete(lost(to.rank));
    granted_[{to.rank, request.id}] = &message;
    to.connection->push({.id = request.id, .kind = TcpKind::grant});
}

DPTK_INLINE void TcpMesh::return_credit(Peer& to, const TcpHeader& message) {
    to.consumed += sizeof(TcpHeader) + message.bytes;
    if (to.consumed < early_credit / 4 || !to.connection) return;
    to.connection->push({.bytes = to.consumed, .kind = TcpKind::credit});
    to.consumed = 0;
}

DPTK_INLINE std::byte* TcpMesh::begin_data(Peer& from, const TcpHeader& header) {
    switch (header.kind) {
        case TcpKind::message:
        case TcpKind::request: return begin_message(from, header);
        case TcpKind::grant:
            if (const auto found = requested_.find(header.id); found != requested_.end()) {
                TcpSend& message = *found->second;
                requested_.erase(found);
                message.header.kind = TcpKind::data;
                from.connection->push(message.header, message.data, &message);
            }
            break;
        case TcpKind::data: {
            const auto found = granted_.find({from.rank, header.id});
            if (found == granted_.end()) break;
            TcpReceive& message = *found->second;
            granted_.erase(found);
            if (header.bytes != message.header.bytes)
                throw BackendError(text("rank ", options_.rank, ": ", label(from.rank), " sends ",
                                        header.bytes, " bytes of a message of ", message.header.bytes));
            from.receiving = &message;
            return static_cast<std::byte*>(message.data);
        }
        case TcpKind::credit:
            from.credit = std::min(from.credit + static_cast<std::size_t>(header.bytes), early_credit);
            break;
        case TcpKind::question: receive_question(from, header); break;
        case TcpKind::answer: group(header.group).fail_overtaken(from.rank, header); break;
        case TcpKind::leave: receive_leave(from, header.group); break;
        case TcpKind::goodbye: receive_goodbye(from); break;
    }
    return nullptr;
}

DPTK_INLINE std::byte* TcpMesh::begin_message(Peer& from, const TcpHeader& header) {
    TcpGroup& in = group(header.group);
    if (in.is_closed) return nullptr;
    TcpReceive* const found = in.take_wanted(from.rank, header);
    if (found == nullptr) {
        TcpGroup::Arrived& arrived = in.arrived.emplace_back(TcpGroup::Arrived{from.rank, header});
        if (header.kind == TcpKind::request) return nullptr;
        arrived.data = std::make_unique_for_overwrite<std::byte[]>(header.bytes);
        from.storing = &arrived;
        return arrived.data.get();
    }
    TcpReceive& message = *found;
    message.peer = from.rank;
    if (std::exception_ptr problem = in.mismatch(from.rank, header, message)) {
        message.complete(std::move(problem));
    } else if (header.kind == TcpKind::request) {
        grant(from, header, message);
    } else {
        from.receiving = &message;
        return static_cast<std::byte*>(message.data);
    }
    return nullptr;
}

DPTK_INLINE void TcpMesh::end_data(Peer& from, const TcpHeader& header) {
    if (header.kind == TcpKind::message && from.storing == nullptr) return_credit(from, header);
    if (from.receiving != nullptr) from.receiving->complete();
    from.receiving = nullptr;
    from.storing = nullptr;
}

DPTK_INLINE void TcpMesh::ask() {
    std::set<int> asked;
    for (const auto& [id, group] : groups_) {
        for (const TcpReceive* const message : group.wanted) {
            if (message->header.tag != collective_message) continue;
            const auto& connection = peer(message->peer).connection;
            if (!connection || connection->has_output()) continue;
            TcpHeader question = message->header;
            question.kind = TcpKind::question;
            connection->push(question);
            asked.insert(message->peer);
        }
    }
    for (const int rank : asked) {
        if (peer(rank).connection) flush(peer(rank));
    }
}

DPTK_INLINE void TcpMesh::receive_question(Peer& from, const TcpHeader& question) {
    TcpGroup& in = group(question.group);
    if (in.is_closed) return;
    if (in.call.call_number <= question.call_number) return in.compare(from.rank, question);
    TcpHeader answer = in.call;
    answer.id = question.call_number;
    answer.kind = TcpKind::answer;
    from.connection->push(answer);
}

DPTK_INLINE void TcpMesh::receive_leave(Peer& from, GroupId id) {
    TcpGroup& in = group(id);
    if (in.is_closed) return;
    in.left.insert(from.rank);
    fail_lost(in, id);
}

DPTK_INLINE void TcpMesh::receive_goodbye(Peer& from) {
    from.has_left = true;
    for (auto& [id, group] : groups_) fail_lost(group, id);
}

DPTK_INLINE void TcpMesh::fail_lost(TcpGroup& group, GroupId id) {
    std::erase_if(group.wanted, [&](TcpReceive* message) {
        if (!is_lost(group, message->peer)) return false;
        message->complete(lost(message->peer));
        return true;
    });
    std::erase_if(requested_, [&](const auto& entry) {
        TcpSend& message = *entry.second;
        if (message.header.group != id || !is_lost(group, message.peer)) return false;
        message.complete(lost(message.peer));
        return true;
    });
}

DPTK_INLINE bool TcpMesh::is_lost(const TcpGroup& group, int rank) {
    const auto has_left = [&](int one) { return peer(one).has_left || group.left.contains(one); };
    if (rank != any_rank) return has_left(rank);
    return detail::all_of(group.ranks, [&](int one) { return one == options_.rank || has_left(one); });
}

DPTK_INLINE std::exception_ptr TcpMesh::lost(int rank) const {
    if (rank == any_rank)
        return std::make_exception_ptr(
            PeerLostError(text("rank ", options_.rank, ": all other ranks have left the group")));
    const std::string& refusal = peers_[static_cast<std::size_t>(rank)]->refusal;
    return std::make_exception_ptr(PeerLostError(
        refusal.empty() ? text("rank ", options_.rank, ": ", label(rank), " has left the group") : refusal,
        {.peer = job_rank(rank)}));
}

DPTK_INLINE void TcpMesh::break_all(std::exception_ptr error) noexcept {
    if (broken_) return;
    broken_ = std::move(error);
    const auto end = [&](TcpOperation* message) {
        if (message != nullptr && !message->is_done) message->complete(broken_);
    };
    for (auto& [id, group] : groups_) {
        for (TcpReceive* const message : group.wanted) end(message);
        group.wanted.clear();
    }
    for (const auto& [id, message] : requested_) end(message);
    for (const auto& [id, message] : granted_) end(message);
    requested_.clear();
    granted_.clear();
    for (const std::unique_ptr<Peer>& other : peers_) {
        for (TcpSend* const message : other->unsent) end(message);
        end(other->receiving);
        if (other->connection) {
            events_.remove(other->connection->socket().number());
            other->connection->abandon(broken_);
        }
        other->unsent.clear();
        other->receiving = nullptr;
        other->storing = nullptr;
        other->connection.reset();
    }
    connector_.clear();
    changed_.notify_all();
    wake_leader();
}

DPTK_INLINE std::optional<MessageInfo> TcpMesh::find(GroupId id, int from, int tag) {
    static_cast<void>(progress());
    std::unique_lock lock(mutex_);
    if (broken_) std::rethrow_exception(broken_);
    const TcpGroup& in = group(id);
    if (const std::optional<MessageInfo> found = in.find_message(from, tag)) return found;
    if (is_lost(in, from)) std::rethrow_exception(lost(from));
    if (const Clock::time_point now = Clock::now(); now - probed_at_ >= reach_interval) {
        probed_at_ = now;
        std::set<int> ranks;
        in.add_awaited(ranks, from);
        static_cast<void>(reach(lock, ranks));
    }
    return std::nullopt;
}

// ---- connections

DPTK_INLINE void TcpMesh::connect(Peer& to) {
    if (to.connection || to.has_left) return;
    connector_.connect(to.rank, *to.addresses);
    wake_leader();
}

DPTK_INLINE bool TcpMesh::reach(std::unique_lock<std::mutex>& lock, const std::set<int>& ranks) {
    bool are_reached = true;
    for (const int rank : ranks) {
        Peer& other = peer(rank);
        if (other.connection || other.has_left) continue;
        are_reached = false;
        if (!other.addresses) {
            lock.unlock();
            const bool is_known = find_addresses(rank);
            lock.lock();
            if (!is_known) continue;
        }
        if (broken_) break;
        connect(other);
    }
    return are_reached;
}

DPTK_INLINE std::set<int> TcpMesh::awaited() const {
    std::set<int> ranks;
    for (const auto& [id, group] : groups_) {
        for (const TcpReceive* const message : group.wanted) group.add_awaited(ranks, message->peer);
    }
    return ranks;
}

DPTK_INLINE void TcpMesh::refuse(Peer& by, const std::string& problem) {
    by.has_left = true;
    by.refusal = problem;
    for (TcpSend* const message : std::exchange(by.unsent, {})) message->complete(lost(by.rank));
    for (auto& [id, group] : groups_) fail_lost(group, id);
}

DPTK_INLINE void TcpMesh::open(Peer& to, Socket socket) {
    to.connection = std::make_unique<TcpConnection>(std::move(socket));
    for (const auto& [id, group] : groups_) {
        if (group.is_closed && detail::contains(group.ranks, to.rank))
            to.connection->push({.group = id, .kind = TcpKind::leave});
    }
    for (TcpSend* const message : to.unsent) send(to, *message);
    to.unsent.clear();
    flush(to);
}

DPTK_INLINE void TcpMesh::receive(Peer& from) {
    if (!from.connection->receive(workspace_, from)) return lose(from);
    flush(from);
}

DPTK_INLINE void TcpMesh::flush(Peer& to) {
    TcpConnection& connection = *to.connection;
    if (connection.has_output() && !connection.flush()) return lose(to);
    if (connection.has_output() == to.waits_for_output) return;
    to.waits_for_output = connection.has_output();
    events_.change(connection.socket().number(), to.waits_for_output ? EPOLLIN | EPOLLOUT : EPOLLIN,
                   {TcpEvent::Kind::connection, static_cast<std::uint32_t>(to.rank)});
}

DPTK_INLINE void TcpMesh::lose(Peer& from) {
    // What the other rank has sent before it closed the connection still arrives.
    do {
        static_cast<void>(from.connection->receive(workspace_, from));
    } while (!from.has_left && from.connection->has_received());
    if (!from.has_left) {
        return break_all(
            std::make_exception_ptr(PeerLostError(text("rank ", options_.rank, ": lost the connection to ",
                                                       label(from.rank), ": ", from.connection->problem()),
                                                  {.peer = job_rank(from.rank)})));
    }
    const std::exception_ptr has_left = lost(from.rank);
    std::erase_if(granted_, [&](const auto& entry) {
        if (entry.first.first != from.rank) return false;
        entry.second->complete(has_left);
        return true;
    });
    events_.remove(from.connection->socket().number());
    from.connection->abandon(has_left);
    from.connection.reset();
}

// ---- waiting

DPTK_INLINE bool TcpMesh::wait(std::unique_lock<std::mutex>& lock, TcpOperation& message,
                               Clock::time_point until) {
    while (!message.is_done) {
        if (is_led_) {
            follow(lock, message, until);
        } else {
            lead(lock, &message, until, [&] { return message.is_done; });
        }
        if (until != Clock::time_point::max() && Clock::now() >= until) break;
    }
    return message.is_done;
}

DPTK_INLINE void TcpMesh::follow(std::unique_lock<std::mutex>& lock, const TcpOperation& message,
                                 Clock::time_point until) {
    if (is_led_in_background_) wake_leader();
    ++followers_;
    const auto ended = [&] { return message.is_done || !is_led_; };
    if (until == Clock::time_point::max()) {
        changed_.wait(lock, ended);
    } else {
        changed_.wait_until(lock, until, ended);
    }
    if (--followers_ == 0) started_changed_.notify_all();
}

template <class Done>
void TcpMesh::lead(std::unique_lock<std::mutex>& lock, const TcpOperation* message, Clock::time_point until,
                   Done&& done) {
    constexpr int most_spins = 100;
    constexpr int spins_per_poll = 16;
    constexpr std::chrono::milliseconds pending_interval{20};
    constexpr std::chrono::milliseconds ask_interval{1000};
    is_led_ = true;
    is_led_in_background_ = message == nullptr;
    try {
        watch_job();
        const bool has_peer = message != nullptr && message->peer != any_rank;
        bool are_reached = false;  // the ranks for whose messages receives wait
        Clock::time_point reach_at{};
        for (int spins = message == nullptr ? most_spins : 0; !done();) {
            if (job_) job_->check();
            if (has_peer && peer(message->peer).connection) receive(peer(message->peer));
            if (done() || broken_) break;
            std::chrono::milliseconds timeout = has_failure_event_ ? longest_wait : reach_interval / 2;
            if (until != Clock::time_point::max()) {
                timeout =
                    std::min(timeout, std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()));
                if (timeout.count() <= 0) break;
            }
            if (++spins < most_spins) {
                if (spins % spins_per_poll == 0) poll(lock, std::chrono::milliseconds(0));
                lock.unlock();
                if (!yield_briefly()) spins = most_spins;
                lock.lock();
                continue;
            }
            const Clock::time_point now = Clock::now();
            if (now - asked_at_ >= ask_interval) {
                // Not for a call that has just begun.
                if (now - asked_at_ < 2 * ask_interval) ask();
                asked_at_ = now;
            }
            // Not at once, because most ranks connect themselves: they send the messages.
            if (reach_at == Clock::time_point{}) reach_at = now + reach_interval;
            if (now >= reach_at) {
                are_reached = reach(lock, awaited());
                reach_at = now + reach_interval;
                if (done() || broken_) break;
            }
            timeout = std::min(timeout, are_reached ? ask_interval : reach_interval);
            if (connector_.has_pending()) timeout = std::min(timeout, pending_interval);
            poll(lock, timeout);
        }
    } catch (const std::exception&) {
        if (!lock.owns_lock()) lock.lock();
        break_all(std::current_exception());
    }
    is_led_ = false;
    changed_.notify_all();
    started_changed_.notify_all();
}

DPTK_INLINE void TcpMesh::poll(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds timeout) {
    std::array<epoll_event, 32> events;
    const bool blocks = timeout.count() != 0;
    if (blocks && followers_ != 0) changed_.notify_all();
    if (blocks) lock.unlock();
    const std::size_t count = events_.wait(events, timeout);
    if (blocks) lock.lock();
    for (std::size_t i = 0; i < count && !broken_; ++i) handle(TcpEvents::event_of(events[i]));
    if (connector_.has_pending()) connector_.advance();
    if (followers_ != 0) changed_.notify_all();
}

DPTK_INLINE void TcpMesh::handle(TcpEvent event) {
    switch (event.kind) {
        case TcpEvent::Kind::connection: {
            Peer& from = peer(static_cast<int>(event.number));
            if (from.connection) receive(from);
            return;
        }
        case TcpEvent::Kind::wake: {
            eventfd_t value = 0;
            static_cast<void>(::eventfd_read(wakes_.number(), &value));
            return;
        }
        case TcpEvent::Kind::failure: return job_->check();
        case TcpEvent::Kind::listener:
        case TcpEvent::Kind::guest:
        case TcpEvent::Kind::attempt: return connector_.handle(event);
    }
}

DPTK_INLINE void TcpMesh::watch_job() {
    if (job_) return;
    if (options_.control) {
        job_ = options_.control->job_state();
    } else if (job_of_call != nullptr) {
        job_ = job_of_call->weak_from_this().lock();
    }
    if (!job_) return;
    const int descriptor = job_->failure_descriptor();
    has_failure_event_ = descriptor >= 0;
    if (has_failure_event_) events_.add(descriptor, EPOLLIN, {TcpEvent::Kind::failure});
}

DPTK_INLINE void TcpMesh::wake_leader() noexcept {
    if (is_led_) static_cast<void>(::eventfd_write(wakes_.number(), 1));
}

DPTK_INLINE bool TcpMesh::progress() {
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || is_led_ || broken_) return false;
    try {
        poll(lock, std::chrono::milliseconds(0));
    } catch (const std::exception&) {
        break_all(std::current_exception());
    }
    return detail::any_of(started_, [](const auto& message) { return !message->is_done; });
}

DPTK_INLINE void TcpMesh::keep_started(std::shared_ptr<TcpOperation> message) {
    watch_job();
    started_.push_back(std::move(message));
    if (!background_.joinable()) background_ = start_background_thread([this] { run_in_background(); });
    started_changed_.notify_all();
}

DPTK_INLINE void TcpMesh::run_in_background() {
    std::unique_lock lock(mutex_);
    while (!is_stopping_) {
        std::erase_if(started_, [](const auto& message) { return message->is_done; });
        if (started_.empty() || is_led_) {
            started_changed_.wait(lock);
            continue;
        }
        lead(lock, nullptr, Clock::time_point::max(), [&] {
            return is_stopping_ || followers_ != 0 ||
                   detail::all_of(started_, [](const auto& message) { return message->is_done; });
        });
        started_changed_.wait(lock, [&] { return is_stopping_ || followers_ == 0; });
    }
}

}  // namespace DPTK_NAMESPACE::detail
