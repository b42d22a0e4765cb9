/// The collectives of ranks that share memory: in place where all ranks' elements lie in what they share, and
/// piece by piece through it where they do not. Between hosts each rank works with those of its place there.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "dptk/comm/node_all_reduce.hpp"
#include "dptk/comm/node_ground.hpp"
#include "dptk/comm/node_moves.hpp"
#include "dptk/comm/node_reduce_scatter.hpp"

namespace dptk::detail {

class NodeCollectives {
  public:
    explicit NodeCollectives(NodeGround ground) : ground_(std::move(ground)) {}

    [[nodiscard]] NodeHub& hub() noexcept { return ground_.hub(); }

    [[nodiscard]] std::shared_ptr<void> allocate(std::size_t bytes) { return ground_.allocate(bytes); }

    [[nodiscard]] std::vector<void*> peer_memory(const Buffer& memory) const {
        return ground_.peer_memory(memory);
    }

    /// Whether the call can be carried out here. The same on all ranks.
    [[nodiscard]] bool serves(const Collective& call) const noexcept {
        const Buffer& shape = call.shared_shape();
        const auto world = static_cast<std::size_t>(ground_.hosts().world);
        if (shape.on_device() || shape.element_size() * world > NodeHub::stage_bytes) return false;
        switch (call.verb) {
            case Verb::all_reduce: return can_be_combined(call);
            case Verb::reduce_scatter: return ground_.hosts().even && can_be_combined(call);
            case Verb::all_gather: return ground_.hosts().even;
            case Verb::broadcast:
            case Verb::barrier: return true;
            default: return false;
        }
    }

    void run(const Collective& call) {
        switch (call.verb) {
            case Verb::all_reduce: return NodeAllReduce(ground_).run(call);
            case Verb::reduce_scatter: return NodeReduceScatter(ground_).run(call);
            case Verb::all_gather: return NodeAllGather(ground_).run(call);
            case Verb::broadcast: return NodeBroadcast(ground_).run(call);
            default: return barrier(call);
        }
    }

  private:
    /// Whether the hosts' results can be put together: other hosts' ranks may lie between this host's, where
    /// the order counts, and a product of 16-bit numbers would be rounded on each host.
    [[nodiscard]] bool can_be_combined(const Collective& call) const noexcept {
        if (ground_.one_host()) return true;
        const Reduction& reduction = call.reduction;
        const bool sums = reduction.op == ReduceOp::sum || reduction.op == ReduceOp::avg;
        return reduction.user == nullptr && (sums || !needs_wide_accumulation(call.input.dtype, reduction));
    }

    void barrier(const Collective& call) {
        ground_.meet(call);
        if (ground_.one_host()) return;
        if (ground_.rank() == 0) ground_.across(call);
        ground_.hub().part();
    }

    NodeGround ground_;
};

}  // namespace dptk::detail
