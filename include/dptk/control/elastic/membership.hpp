/// Membership: this process as a member of an elastic job. It sends heartbeats to the job's store, and joins
/// the job's generations one after the other.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "dptk/control/elastic/generation.hpp"
#include "dptk/control/elastic/quorum.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

struct MembershipOptions {
    /// The store of the job, beside which a MembershipMonitor runs.
    std::shared_ptr<Store> store;
    /// The number of this member; 0 for a new one.
    MemberId id = 0;
    /// How long a member may send no heartbeat.
    std::chrono::milliseconds heartbeat_timeout = default_heartbeat_timeout;
    /// Connects to the second store of the job, whose address is given. Throws if that is not possible.
    std::function<std::shared_ptr<Store>(const std::string& address)> open_second = {};
};

/// One thread at a time may call it.
class Membership {
  public:
    /// Reports that this process has come, and starts its heartbeats. Throws as the store does.
    explicit Membership(const MembershipOptions& options);
    Membership(const Membership&) = delete;
    Membership& operator=(const Membership&) = delete;

    /// Reports that this process has finished, or that an exception ends it.
    ~Membership();

    [[nodiscard]] MemberId id() const noexcept { return vote_.member; }

    /// Returns whether a generation has been formed in the store.
    [[nodiscard]] bool has_begun();

    /// Leaves the current generation, and waits for the next one that contains this member. Continues in the
    /// second store of the job if the first one is lost. Blocks. Throws PeerLostError if the job has ended or
    /// its stores are lost.
    const Generation& join();

    /// Returns the generation that join() has returned last.
    [[nodiscard]] const Generation& generation() const noexcept { return generation_; }

    /// Asks the store why the generation has ended; returns nullopt while it continues.
    [[nodiscard]] std::optional<std::string> why_ended();

    /// Returns the part of the store that belongs to the generation, through a connection of its own.
    [[nodiscard]] std::shared_ptr<Store> store_of_generation() const;

    /// Notes that all members of the generation are connected, and have the same state. Call it on all of
    /// them.
    void note_formed();

    /// Notes that the generation has completed its work, so that no new member is let in.
    void note_finishing();

  private:
    struct Heartbeat;

    /// Reports that this process has come to the store, and starts its heartbeats.
    void arrive();
    void end_heartbeat();
    static void beat(Heartbeat& heartbeat) noexcept;
    /// Throws PeerLostError if the heartbeats have ended, so that this process no longer counts as a member.
    void check_heartbeat();
    /// Reads the address of the second store, which may change while the first one is used.
    static void note_second(Heartbeat& heartbeat, Store& store);
    /// Returns the address of the second store, and forgets it; an empty text if it is not known.
    [[nodiscard]] std::string take_second();

    const Generation& join_in_store();
    /// Call it while `loss` is handled: throws it again if there is no second store.
    void move_to_second(const PeerLostError& loss);
    /// Sets a key of the generation.
    void note(std::string_view key);
    /// Calls a function that writes to the store, but not if the store is lost.
    template <class Call>
    void report(Call&& call);

    void publish_vote() { store_->set(vote_key_, vote_.to_text()); }
    [[nodiscard]] std::int64_t latest();
    [[nodiscard]] NextGeneration next();

    std::shared_ptr<Store> store_;
    std::function<std::shared_ptr<Store>(const std::string& address)> open_second_;
    std::chrono::milliseconds heartbeat_timeout_;
    Vote vote_;
    std::string vote_key_;
    Generation generation_;
    std::shared_ptr<Heartbeat> heartbeat_;
    int uncaught_exceptions_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/elastic/membership.ipp"
#endif
