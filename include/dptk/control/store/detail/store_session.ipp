#pragma once

#include "dptk/control/store/detail/store_session.hpp"

#include <algorithm>
#include <utility>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// Limit of the bytes that all sessions together hold in incomplete requests, unsent replies and last
/// wills. Beyond it, a session that needs more than always_granted_bytes is rejected.
inline constexpr std::size_t max_pending_bytes = std::size_t{128} << 20;

inline constexpr std::size_t always_granted_bytes = 4096;

/// Compares tokens, in a time that depends only on the length of the given token.
[[nodiscard]] DPTK_INLINE bool same_token(std::string_view expected, std::string_view given) {
    unsigned difference = expected.size() == given.size() ? 0 : 1;
    for (std::size_t i = 0; i < given.size(); ++i) {
        const char other = expected.empty() ? '\0' : expected[i % expected.size()];
        difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(other);
    }
    return difference == 0;
}

DPTK_INLINE StoreSessions::StoreSessions(std::shared_ptr<SharedStoreMap> map, std::string token,
                                         std::size_t max_greeted, std::function<void()> wake)
    : map_(std::move(map)), token_(std::move(token)), max_greeted_(max_greeted), wake_(std::move(wake)) {
    map_->observe([this](std::string_view key) { note_written(key); });
}

DPTK_INLINE StoreSessions::~StoreSessions() {
    map_->observe(nullptr);
}

DPTK_INLINE void StoreSessions::note_written(std::string_view key) {
    const std::lock_guard lock(written_mutex_);
    written_.emplace_back(key);
    if (written_.size() == 1) wake_();
}

DPTK_INLINE std::vector<std::string> StoreSessions::take_written() {
    const std::lock_guard lock(written_mutex_);
    return std::exchange(written_, {});
}

DPTK_INLINE StoreSession::~StoreSession() {
    end();
    sessions_.pending_bytes_ -= accounted_;
}

DPTK_INLINE bool StoreSession::wants_input() const noexcept {
    return !ended_ && missing_.empty() && to_send().empty();
}

DPTK_INLINE void StoreSession::receive(std::string_view bytes, TimePoint now) {
    if (ended_) return;
    input_ += bytes;
    advance(now);
}

DPTK_INLINE std::string_view StoreSession::to_send() const noexcept {
    return std::string_view(output_).substr(output_sent_);
}

DPTK_INLINE void StoreSession::sent(std::size_t bytes, TimePoint now) {
    output_sent_ += bytes;
    if (output_sent_ < output_.size()) return;
    output_.clear();
    output_sent_ = 0;
    advance(now);
}

DPTK_INLINE void StoreSession::expire(TimePoint now) {
    if (!missing_.empty()) {
        reply_missing();
        advance(now);
    } else {
        output_.clear();
        output_sent_ = 0;
        end();
    }
}

DPTK_INLINE void StoreSession::key_written(const std::string& key, TimePoint now) {
    if (waits_for_value_) {
        std::optional<std::string> value = sessions_.map_->find(key);
        if (!value) {  // erased again
            sessions_.waiting_[key].insert(this);
            return;
        }
        missing_.clear();
        reply({.text = *value});
    } else {
        missing_.erase(key);
        if (missing_.empty()) reply({});
    }
    advance(now);
}

DPTK_INLINE void StoreSession::advance(TimePoint now) {
    std::size_t used = 0;
    while (wants_input()) {
        const std::size_t bytes = take_one(std::string_view(input_).substr(used), now);
        if (bytes == 0) break;
        used += bytes;
    }
    input_.erase(0, used);
    if (input_.empty()) input_.shrink_to_fit();
    account();
    update_deadline(used > 0, now);
}

DPTK_INLINE std::size_t StoreSession::take_one(std::string_view received, TimePoint now) {
    const FrameView frame = greeted_ ? parse_frame(received, max_request_bytes) : parse_greeting(received);
    if (frame.state == ParseState::malformed) reject("it does not speak the store's protocol");
    if (frame.state != ParseState::complete) return 0;
    if (!greeted_) {
        greet(frame.body);
    } else if (const std::optional<StoreRequest> request = parse_request(frame.body)) {
        serve(*request, now);
    } else {
        reject("it does not speak the store's protocol");
    }
    return frame.bytes;
}

DPTK_INLINE void StoreSession::greet(std::string_view body) {
    const std::optional<StoreHello> hello = parse_hello(body);
    if (!hello) {
        reject("it does not speak the store's protocol");
    } else if (hello->protocol != store_protocol_number) {
        refuse(Verdict::refused,
               text("it uses protocol ", hello->protocol, " of the store, and this server uses protocol ",
                    store_protocol_number, ": the versions of dptk differ"));
    } else if (!same_token(sessions_.token_, hello->token)) {
        refuse(Verdict::refused, "wrong token");
    } else if (sessions_.greeted_ >= sessions_.max_greeted_) {
        refuse(Verdict::busy, text("there are ", sessions_.greeted_, " connections; the limit is reached"));
    } else {
        if (hello->reconnects) {
            std::optional<StoreClient> known = sessions_.resume(hello->client);
            if (!known) return refuse(Verdict::refused, "it has not reconnected in time after a reset");
            client_ = std::move(*known);
        } else {
            sessions_.parked_.erase(hello->client);  // such a client has no last will
        }
        client_id_ = hello->client;
        if (client_id_ != 0) sessions_.by_client_[client_id_] = this;
        ++sessions_.greeted_;
        greeted_ = true;
        output_ = encode(StoreHelloReply{});
    }
}

DPTK_INLINE void StoreSession::refuse(Verdict verdict, const std::string& reason) {
    output_ = encode(StoreHelloReply{store_protocol_number, verdict, reason});
    reject(reason);
}

DPTK_INLINE void StoreSession::reject(std::string_view rejection) {
    rejection_ = rejection;
    end();
}

DPTK_INLINE void StoreSession::serve(const StoreRequest& request, TimePoint now) {
    if (request.sequence != 0 && request.sequence == client_.sequence) {
        output_ = client_.reply;
        return;
    }
    try {
        carry_out(request, now);
        if (is_repeatable(request.operation) || request.sequence == 0) return;
        client_.sequence = request.sequence;
        client_.reply = output_;
    } catch (const ArgumentError& error) {
        reply({.status = StoreStatus::rejected, .text = error.what()});
    } catch (const PeerLostError&) {
        end();
    }
}

DPTK_INLINE void StoreSession::carry_out(const StoreRequest& request, TimePoint now) {
    const std::vector<std::string_view>& fields = request.fields;
    SharedStoreMap& map = *sessions_.map_;
    switch (request.operation) {
        case StoreOperation::set: map.set(fields[0], fields[1]); return reply({});
        case StoreOperation::get:
        case StoreOperation::wait: return wait_for(request, now);
        case StoreOperation::find:
            if (const std::optional<std::string> value = map.find(fields[0])) return reply({.text = *value});
            return reply({.status = StoreStatus::absent});
        case StoreOperation::add: return reply({.number = map.add(fields[0], request.number)});
        case StoreOperation::compare_and_set:
            return reply({.text = map.compare_and_set(fields[0], fields[1], fields[2])});
        case StoreOperation::erase:
            return reply({.status = map.erase(fields[0]) ? StoreStatus::done : StoreStatus::absent});
        case StoreOperation::last_will:
            client_.will_key = fields[0];
            client_.will_value = fields[0].empty() ? std::string_view() : fields[1];
            client_.outlives_reset = request.number != 0;
            return reply({});
        case StoreOperation::goodbye: client_.will_key.clear(); return end();
    }
}

DPTK_INLINE void StoreSession::wait_for(const StoreRequest& request, TimePoint now) {
    waits_for_value_ = request.operation == StoreOperation::get;
    for (std::size_t i = 0; i < request.fields.size(); ++i) {
        const std::optional<std::string> value = sessions_.map_->find(request.fields[i]);
        if (value && waits_for_value_) return reply({.text = *value});
        if (!value) missing_.emplace(request.fields[i], i);
    }
    if (missing_.empty()) return reply({});
    for (const auto& [key, index] : missing_) sessions_.waiting_[key].insert(this);
    const std::chrono::milliseconds timeout(
        std::clamp<std::int64_t>(request.number, 0, longest_wait.count()));
    wait_deadline_ = now + timeout;
}

DPTK_INLINE void StoreSession::reply_missing() {
    StoreReply answer{.status = StoreStatus::missing};
    for (const auto& [key, index] : missing_) answer.missing.push_back(static_cast<std::uint32_t>(index));
    std::sort(answer.missing.begin(), answer.missing.end());
    stop_waiting();
    reply(answer);
}

DPTK_INLINE void StoreSession::stop_waiting() {
    for (const auto& [key, index] : missing_) {
        const auto line = sessions_.waiting_.find(key);
        if (line == sessions_.waiting_.end()) continue;
        line->second.erase(this);
        if (line->second.empty()) sessions_.waiting_.erase(line);
    }
    missing_.clear();
}

DPTK_INLINE void StoreSession::end() {
    if (!ended_) sessions_.carry_out_will(leave());
}

DPTK_INLINE StoreClient StoreSession::leave() {
    ended_ = true;
    input_.clear();
    stop_waiting();
    if (greeted_) --sessions_.greeted_;
    const auto own = sessions_.by_client_.find(client_id_);
    if (own != sessions_.by_client_.end() && own->second == this) sessions_.by_client_.erase(own);
    return std::move(client_);
}

DPTK_INLINE bool StoreSession::park(TimePoint now) {
    if (ended_ || !greeted_ || client_id_ == 0) return false;
    const std::uint64_t id = client_id_;
    sessions_.parked_[id] = {now + reconnect_time, leave()};
    return true;
}

DPTK_INLINE std::optional<StoreClient> StoreSessions::resume(std::uint64_t client) {
    std::optional<StoreClient> known;
    if (const auto parked = parked_.find(client); parked != parked_.end()) {
        known = std::move(parked->second.client);
        parked_.erase(parked);
    } else if (const auto live = by_client_.find(client); live != by_client_.end()) {
        known = live->second->leave();  // this side has not noticed the reset yet
    }
    return known;
}

DPTK_INLINE void StoreSessions::expire(Deadline::Clock::time_point now) {
    for (auto parked = parked_.begin(); parked != parked_.end();) {
        if (parked->second.deadline > now) {
            ++parked;
            continue;
        }
        const StoreClient client = std::move(parked->second.client);
        parked = parked_.erase(parked);
        if (!client.outlives_reset) carry_out_will(client);
    }
}

DPTK_INLINE void StoreSessions::carry_out_will(const StoreClient& client) noexcept {
    if (client.will_key.empty()) return;
    try {
        map_->compare_and_set(client.will_key, "", client.will_value);
    } catch (const Error&) {
        // The store is full or closed, and the client can no longer receive an error.
    }
}

DPTK_INLINE void StoreSession::account() {
    std::size_t bytes =
        input_.capacity() + output_.capacity() + client_.will_value.capacity() + client_.reply.capacity();
    for (const auto& [key, index] : missing_) bytes += 2 * key.size() + store_entry_overhead;
    sessions_.pending_bytes_ += bytes - accounted_;
    accounted_ = bytes;
    if (sessions_.pending_bytes_ > max_pending_bytes && bytes > always_granted_bytes) {
        reject(text("the pending data of all connections exceeds ", max_pending_bytes >> 20, " MiB"));
    }
}

DPTK_INLINE void StoreSession::update_deadline(bool progress, TimePoint now) {
    if (!greeted_ && !ended_) return;
    State state = State::idle;
    if (!to_send().empty()) {
        state = State::sending;
    } else if (!missing_.empty()) {
        state = State::waiting;
    } else if (!input_.empty()) {
        state = State::receiving;
    }
    if (state == state_ && !progress) return;
    state_ = state;
    if (state == State::idle) {
        deadline_.reset();
    } else if (state == State::waiting) {
        deadline_ = wait_deadline_;
    } else {
        deadline_ = now + transfer_time;
    }
}

DPTK_INLINE std::vector<std::uint64_t> StoreSessions::deliver(Deadline::Clock::time_point now) {
    std::vector<std::uint64_t> answered;
    for (auto written = take_written(); !written.empty(); written = take_written()) {
        for (const std::string& key : written) {
            const auto line = waiting_.extract(key);
            if (line.empty()) continue;
            for (StoreSession* session : line.mapped()) {
                session->key_written(key, now);
                answered.push_back(session->id());
            }
        }
    }
    return answered;
}

}  // namespace DPTK_NAMESPACE::detail
