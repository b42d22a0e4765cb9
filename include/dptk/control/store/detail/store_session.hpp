/// The server's side of one connection to a store, without the socket: bytes in, bytes out, and deadlines. It
/// takes nothing on trust, and what it keeps is bounded.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/control/process/deadline.hpp"
#include "dptk/control/store/detail/shared_store_map.hpp"
#include "dptk/control/store/detail/store_protocol.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// How long a stranger may take to greet.
inline constexpr std::chrono::seconds greeting_time{10};

/// How long a request may take to arrive once it has begun, and a reply to be taken.
inline constexpr std::chrono::seconds transfer_time{60};

class StoreSession;

/// What the sessions of one server share. Apart from the map, it belongs to the server's thread.
class StoreSessions {
  public:
    /// `wake` is called by whichever thread writes while nothing written is waiting for deliver().
    StoreSessions(std::shared_ptr<SharedStoreMap> map, std::string token, std::size_t max_greeted,
                  std::function<void()> wake);

    StoreSessions(const StoreSessions&) = delete;
    StoreSessions& operator=(const StoreSessions&) = delete;
    ~StoreSessions();

    /// What all sessions keep in unfinished requests, untaken replies and last wills.
    [[nodiscard]] std::size_t pending_bytes() const noexcept { return pending_bytes_; }

    /// Answers the sessions that wait for keys which have been written meanwhile. Returns their ids.
    std::vector<std::uint64_t> deliver(Deadline::Clock::time_point now);

  private:
    friend class StoreSession;

    void note_written(std::string_view key);

    [[nodiscard]] std::vector<std::string> take_written();

    std::shared_ptr<SharedStoreMap> map_;
    std::string token_;
    std::size_t max_greeted_;
    std::size_t greeted_ = 0;
    std::size_t pending_bytes_ = 0;
    std::map<std::string, std::set<StoreSession*>, std::less<>> waiting_;

    std::function<void()> wake_;
    std::mutex written_mutex_;
    std::vector<std::string> written_;
};

class StoreSession {
  public:
    using TimePoint = Deadline::Clock::time_point;

    StoreSession(StoreSessions& sessions, std::uint64_t id, TimePoint now)
        : sessions_(sessions), id_(id), deadline_(now + greeting_time) {}

    StoreSession(const StoreSession&) = delete;
    StoreSession& operator=(const StoreSession&) = delete;

    /// Without a goodbye before, this is the time of the last will.
    ~StoreSession();

    [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
    [[nodiscard]] bool greeted() const noexcept { return greeted_; }

    /// Nothing more is to be received; what is still to be sent should be sent.
    [[nodiscard]] bool ended() const noexcept { return ended_; }

    /// Why this was no client of ours; empty where there is nothing to complain of.
    [[nodiscard]] const std::string& complaint() const noexcept { return complaint_; }

    /// No more is taken while a request waits for its keys or a reply for its reader.
    [[nodiscard]] bool wants_input() const noexcept;

    void receive(std::string_view bytes, TimePoint now);

    [[nodiscard]] std::string_view to_send() const noexcept;

    void sent(std::size_t bytes, TimePoint now);

    /// When to call expire(); never, where there is none.
    [[nodiscard]] std::optional<TimePoint> deadline() const noexcept { return deadline_; }

    void expire(TimePoint now);

    /// A key that this connection waits for has been written, and its place in the line of those who wait
    /// taken.
    void key_written(const std::string& key, TimePoint now);

  private:
    enum class CallTracker { idle, receiving, waiting, sending };

    /// Takes requests as long as there are complete ones and their replies are taken.
    void advance(TimePoint now);

    /// The bytes used; 0 where there is no complete message, or the session has ended.
    [[nodiscard]] std::size_t take_one(std::string_view received, TimePoint now);

    void greet(std::string_view body);

    void refuse(Verdict verdict, const std::string& reason);

    void complain(std::string_view complaint);

    void serve(const StoreRequest& request, TimePoint now);

    void carry_out(const StoreRequest& request, TimePoint now);

    void wait_for(const StoreRequest& request, TimePoint now);

    void reply_missing();

    void reply(const StoreReply& answer) { output_ = encode(answer); }

    void stop_waiting();

    void end();

    void account();

    void update_deadline(bool progress, TimePoint now);

    StoreSessions& sessions_;
    std::uint64_t id_;
    std::optional<TimePoint> deadline_;
    TimePoint wait_deadline_{};
    CallTracker tracker_ = CallTracker::idle;
    bool greeted_ = false;
    bool ended_ = false;
    bool waits_for_value_ = false;
    std::string complaint_;
    std::string input_;
    std::string output_;
    std::size_t output_sent_ = 0;
    /// The keys of the present request that have no value, and their places in it.
    std::map<std::string, std::uint32_t, std::less<>> missing_;
    std::string will_key_;
    std::string will_value_;
    std::size_t accounted_ = 0;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/store/detail/store_session.ipp"
#endif
