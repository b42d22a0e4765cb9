/// AllReduceAlgorithm names the ways in which an all_reduce can be carried out; comm/algorithms/run.hpp has
/// them.
#pragma once

#include <cstdint>
#include <string_view>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// How an all_reduce is carried out. `automatic` is the transport's own where it has one, and otherwise
/// recursive doubling up to 64 KiB, recursive halving up to 512 KiB a rank, and a ring above.
/// `recursive_halving` is the ring where the number of ranks is no power of two. Sums of the 16-bit formats,
/// and functions of the user's, always go by slices, unless the transport itself combines them in rank order
/// and rounds once.
enum class AllReduceAlgorithm : std::uint8_t {
    automatic,
    ring,
    tree,
    recursive_doubling,
    recursive_halving,
    slices,
};

/// The name of an algorithm as messages show it: "recursive doubling".
[[nodiscard]] constexpr std::string_view algorithm_name(AllReduceAlgorithm algorithm) noexcept {
    switch (algorithm) {
        case AllReduceAlgorithm::automatic: return "automatic";
        case AllReduceAlgorithm::ring: return "ring";
        case AllReduceAlgorithm::tree: return "tree";
        case AllReduceAlgorithm::recursive_doubling: return "recursive doubling";
        case AllReduceAlgorithm::recursive_halving: return "recursive halving";
        case AllReduceAlgorithm::slices: return "slices";
    }
    return "no algorithm";
}

}  // namespace DPTK_NAMESPACE
