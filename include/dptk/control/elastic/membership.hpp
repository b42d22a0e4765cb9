/// Membership: this process as a member of an elastic job. It sends heartbeats to the job's store, and joins
/// the job's generations one after the other.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
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

    /// Leaves the current generation, and waits for the next one that contains this member. Blocks. Throws
    /// PeerLostError if the job has ended or its store is lost.
    const Generation& join();

    /// Returns the generation that join() has returned last.
    [[nodiscard]] const Generation& generation() const noexcept { return generation_; }

    /// Returns the part of the store that belongs to the generation, through a connection of its own.
    [[nodiscard]] std::shared_ptr<Store> store_of_generation() const;

    /// Notes that all members of the generation are connected, and have the same state. Call it on all of
    /// them.
    void note_formed();

    /// Notes that the generation has completed its work, so that no new member is let in.
    void note_finishing();

  private:
    struct Heartbeat;

    static void beat(Heartbeat& heartbeat) noexcept;
    void publish_vote() { store_->set(vote_key_, vote_.to_text()); }
    [[nodiscard]] std::int64_t latest();
    [[nodiscard]] NextGeneration next();

    std::shared_ptr<Store> store_;
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
