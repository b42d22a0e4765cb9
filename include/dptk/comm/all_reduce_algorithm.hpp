/// AllReduceAlgorithm names the all-reduce algorithms: ring, tree, recursive doubling, recursive halving,
/// slices. comm/algorithms/run.hpp executes them.
#pragma once

#include <cstdint>
#include <string_view>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// The algorithm of an all_reduce. `automatic` selects the transport's native all_reduce if the transport has
/// one. Otherwise it selects recursive doubling up to 64 KiB, recursive halving up to 512 KiB per rank, and a
/// ring for larger buffers. `recursive_halving` falls back to the ring if the number of ranks is not a power
/// of two. With `slices`, each rank combines one slice of all ranks' buffers, in rank order, and rounds once.
/// Sums of f16 and bf16, and user functions, always use `slices`, unless the transport's native all_reduce
/// supports them.
enum class AllReduceAlgorithm : std::uint8_t {
    automatic,
    ring,
    tree,
    recursive_doubling,
    recursive_halving,
    slices,
};

/// Returns the name of an algorithm for error texts: "recursive doubling".
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
