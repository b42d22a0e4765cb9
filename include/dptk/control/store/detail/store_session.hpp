/// Store session: the server side of one connection to a store, without the socket. It consumes received
/// bytes, produces bytes to send, and has deadlines. It validates all input, and bounds the memory of each
/// connection.
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

/// The time limit for the greeting of a new connection.
inline constexpr std::chrono::seconds greeting_time{10};

/// The time limit for receiving a request after its first byte, and for sending a reply.
inline constexpr std::chrono::seconds transfer_time{60};

/// How long a client whose connection was reset has to reconnect before its last will is carried out.
inline constexpr std::chrono::seconds reconnect_time{2};

class StoreSession;

/// What the server knows about a client, and keeps while the client reconnects.
struct StoreClient {
    std::string will_key = {};
    std::string will_value = {};
    bool outlives_reset = false;  ///< the will is not carried out after a reset
    /// The last request that may not be carried out twice, and its reply.
    std::uint32_t sequence = 0;
    std::string reply = {};
};

/// The state that the sessions of one server share. Only the server's thread uses it, except for the map
/// and the list of written keys.
class StoreSessions {
  public:
    /// `wake` is called by a thread that writes a key, if deliver() has no other written keys to handle.
    StoreSessions(std::shared_ptr<SharedStoreMap> map, std::string token, std::size_t max_greeted,
                  std::function<void()> wake);

    StoreSessions(const StoreSessions&) = delete;
    StoreSessions& operator=(const StoreSessions&) = delete;
    ~StoreSessions();

    /// Returns the bytes that all sessions hold in incomplete requests, unsent replies and last wills.
    [[nodiscard]] std::size_t pending_bytes() const noexcept { return pending_bytes_; }

    /// Notifies the sessions that wait for a key that was written since the last call, so that they reply.
    /// Returns the ids of these sessions.
    std::vector<std::uint64_t> deliver(Deadline::Clock::time_point now);

    /// Carries out the last wills of clients that have not reconnected in time.
    void expire(Deadline::Clock::time_point now);

  private:
    friend class StoreSession;

    struct Parked {
        Deadline::Clock::time_point deadline;
        StoreClient client;
    };

    /// Ends the old session of a client that reconnects, and returns the client's state. Returns nullopt if
    /// the client is unknown, because it has reconnected too late.
    [[nodiscard]] std::optional<StoreClient> resume(std::uint64_t client);

    void carry_out_will(const StoreClient& client) noexcept;

    void note_written(std::string_view key);

    [[nodiscard]] std::vector<std::string> take_written();

    std::shared_ptr<SharedStoreMap> map_;
    std::string token_;
    std::size_t max_greeted_;
    std::size_t greeted_ = 0;
    std::size_t pending_bytes_ = 0;
    std::map<std::string, std::set<StoreSession*>, std::less<>> waiting_;
    /// The sessions of the connected clients that can reconnect.
    std::map<std::uint64_t, StoreSession*> by_client_;
    /// The clients whose connection was reset, until they reconnect or their time has passed.
    std::map<std::uint64_t, Parked> parked_;

    std::function<void()> wake_;
    std::mutex written_mutex_;
    std::vector<std::string> written_;
};

class StoreSession {
    friend class StoreSessions;

  public:
    using TimePoint = Deadline::Clock::time_point;

    StoreSession(StoreSessions& sessions, std::uint64_t id, TimePoint now)
        : sessions_(sessions), id_(id), deadline_(now + greeting_time) {}

    StoreSession(const StoreSession&) = delete;
    StoreSession& operator=(const StoreSession&) = delete;

    /// Carries out the client's last will, unless the client has sent a goodbye.
    ~StoreSession();

    [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
    [[nodiscard]] bool greeted() const noexcept { return greeted_; }

    /// Returns whether the session has ended. An ended session ignores further input; its remaining output
    /// should still be sent.
    [[nodiscard]] bool ended() const noexcept { return ended_; }

    /// Returns why the server has rejected this connection, or an empty string.
    [[nodiscard]] const std::string& rejection() const noexcept { return rejection_; }

    /// Returns whether the session accepts input: not while a request waits for keys or a reply is unsent.
    [[nodiscard]] bool wants_input() const noexcept;

    void receive(std::string_view bytes, TimePoint now);

    [[nodiscard]] std::string_view to_send() const noexcept;

    void sent(std::size_t bytes, TimePoint now);

    /// Returns when expire() must be called, or nullopt.
    [[nodiscard]] std::optional<TimePoint> deadline() const noexcept { return deadline_; }

    void expire(TimePoint now);

    /// Called when the connection was reset. Returns whether the client may reconnect until now +
    /// reconnect_time; its last will is not carried out before.
    [[nodiscard]] bool park(TimePoint now);

    /// Called after a key that this session waits for has been written. The caller has removed the session
    /// from the key's list of waiting sessions.
    void key_written(const std::string& key, TimePoint now);

  private:
    enum class State { idle, receiving, waiting, sending };

    /// Handles received requests while they are complete and the previous reply has been sent.
    void advance(TimePoint now);

    /// Handles one message. Returns its size, or 0 if the message is incomplete or malformed.
    [[nodiscard]] std::size_t take_one(std::string_view received, TimePoint now);

    void greet(std::string_view body);

    void refuse(Verdict verdict, const std::string& reason);

    void reject(std::string_view rejection);

    void serve(const StoreRequest& request, TimePoint now);

    void carry_out(const StoreRequest& request, TimePoint now);

    void wait_for(const StoreRequest& request, TimePoint now);

    void reply_missing();

    void reply(const StoreReply& answer) { output_ = encode(answer); }

    void stop_waiting();

    /// Ends the session, and carries out the client's last will.
    void end();

    /// Ends the session, and returns what is known about the client.
    [[nodiscard]] StoreClient leave();

    void account();

    void update_deadline(bool progress, TimePoint now);

    StoreSessions& sessions_;
    std::uint64_t id_;
    std::optional<TimePoint> deadline_;
    TimePoint wait_deadline_{};
    State state_ = State::idle;
    bool greeted_ = false;
    bool ended_ = false;
    bool waits_for_value_ = false;
    std::string rejection_;
    std::string input_;
    std::string output_;
    std::size_t output_sent_ = 0;
    /// The keys of the current request that have no value, and their indices in the request.
    std::map<std::string, std::uint64_t, std::less<>> missing_;
    std::uint64_t client_id_ = 0;
    StoreClient client_;
    std::size_t accounted_ = 0;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/store/detail/store_session.ipp"
#endif
