/// AllReduceAlgorithm names the all-reduce algorithms: ring, tree, recursive doubling, recursive halving.
/// comm/algorithms/run.hpp executes them.
#pragma once

#include <cstdint>
#include <string_view>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// The algorithm of an all_reduce. `automatic` selects the transport's native all_reduce if it has one.
/// Otherwise it selects recursive doubling up to 64 KiB, recursive halving up to 512 KiB per rank, and a ring
/// above. `recursive_halving` falls back to the ring if the number of ranks is not a power of two. Sums of
/// the 16-bit formats, and user functions, always use `slices`, unless the transport itself combines them in
/// rank order and rounds once.
enum class AllReduceAlgorithm : std::uint8_t {
    automatic,
    ring,
    tree,
    recursive_doubling,
    recursive_halving,
    slices,
};

/// Returns the name of an algorithm as messages show it: "recursive doubling".
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
