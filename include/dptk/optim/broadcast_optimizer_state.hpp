/// broadcast_optimizer_state(), which gives all ranks the state of one rank's optimizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/optim/optimizer.hpp"

namespace DPTK_NAMESPACE {

/// Broadcasts the state of the first `slots` slots, and the learning rate, from rank `root` to all ranks: as
/// Horovod's function of this name, after rank `root` has read a checkpoint. Collective, blocks.
template <Optimizer O>
void broadcast_optimizer_state(ProcessGroup& group, O& optimizer, std::size_t slots, int root = 0) {
    using T = typename O::Scalar;
    for (std::size_t slot = 0; slot < slots; ++slot) {
        std::tuple<std::int64_t, std::vector<std::vector<T>>> sent;
        if (group.rank() == root) {
            OptimizerState<T> own = optimizer.state(slot);
            sent = {own.steps, std::move(own.arrays)};
        }
        group.broadcast_object(sent, root);
        if (group.rank() != root)
            optimizer.set_state(slot, {std::get<0>(sent), std::move(std::get<1>(sent))});
    }
    if constexpr (requires { optimizer.set_lr(optimizer.lr()); }) {
        double lr[] = {optimizer.lr()};
        group.broadcast(lr, root);
        optimizer.set_lr(lr[0]);
    }
}

}  // namespace DPTK_NAMESPACE
