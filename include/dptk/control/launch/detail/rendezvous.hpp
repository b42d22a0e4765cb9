/// The rendezvous: every process of a job comes to a store and says who it is; rank 0 sees whether they fit
/// together, and tells all of them. Whatever is wrong, all that have come throw the same sentence.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

struct RendezvousOptions {
    int rank = 0;
    int world_size = 1;
    std::chrono::milliseconds timeout = default_timeout;
    /// For messages: "tcp://10.0.0.1:29500".
    std::string where = "the store";
};

/// The processes that have met, by rank.
struct Peers {
    std::vector<std::string> labels;
    std::vector<std::string> hosts;
};

/// What a process says of itself.
struct PeerInfo {
    int rank = 0;
    int world_size = 1;
    std::string version;
    std::string host;
    std::string label;

    friend bool operator==(const PeerInfo&, const PeerInfo&) = default;

    [[nodiscard]] std::string to_line() const;

    [[nodiscard]] static std::optional<PeerInfo> parse(std::string_view line);

    [[nodiscard]] std::string name() const;
};

/// Blocks until all `world_size` processes have come to the store, for at most the timeout. Throws, on all
/// that have come, TimeoutError that names the missing ranks, and MismatchError where two processes have one
/// rank, or disagree about the world size or the version of dptk. Collective.
[[nodiscard]] Peers rendezvous(Store& store, RendezvousOptions options);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/launch/detail/rendezvous.ipp"
#include "dptk/core/error.hpp"
#endif
