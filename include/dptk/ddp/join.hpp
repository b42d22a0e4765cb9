/// Uneven inputs: training with different numbers of batches per rank, like PyTorch's Join. A rank that has
/// run out of batches shadows the steps of the others: it takes part in their collectives without gradients
/// of its own.
///
/// Programs that know the number of samples in each step do not need Join: begin_step(0) is a step without
/// samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/ddp/distributed_data_parallel.hpp"
#include "dptk/ddp/sharded_optimizer.hpp"

namespace DPTK_NAMESPACE {

/// Options of Join, named as in PyTorch. They must be equal on all ranks.
struct JoinOptions {
    /// Selects the divisor of averages without sample counts: the number of all ranks if true, or the
    /// number of ranks that still have batches if false. With sample counts, averages are over the samples
    /// in either case.
    bool divide_by_initial_world_size = true;
    /// Makes all ranks throw as soon as one rank has run out of batches.
    bool throw_on_early_termination = false;
};

/// Coordinates ranks with different numbers of batches. Each rank calls begin_step() before each of its
/// batches, and finish() after the last one.
class Join {
  public:
    /// Throws MismatchError on all ranks if the options differ. Collective. The group must outlive this
    /// object.
    explicit Join(ProcessGroup& group, JoinOptions options = {});

    /// Registers other communication of a step. Call the overloads of add() in the order in which a step
    /// communicates. shadow() does the collectives of one step on a rank that has no batch. finish(last) is
    /// called on all ranks when no rank has a batch left; `last` is one of the ranks that had the last
    /// batch.
    void add(std::function<void()> shadow, std::function<void(int last)> finish = {});

    /// Registers a DistributedDataParallel. At the end, all ranks receive the values of a rank that had the
    /// last batch.
    void add(DistributedDataParallel& ddp);

    /// Registers a ShardedOptimizer. A rank without batches still steps its part of the parameters.
    /// `between` must do the collectives that the program calls between synchronize() and step(), such as
    /// sharded.clip_grad_norm().
    template <class O>
    void add(ShardedOptimizer<O>& sharded, std::function<void()> between = {}) {
        const auto shadow = [&sharded, between = std::move(between)] {
            shadow_step(sharded);
            if (between) between();
            sharded.step();
        };
        members_.push_back(
            {shadow, {}, [&sharded](const detail::JoinRound& round) { set_round(sharded, round); }});
    }

    /// Reports that this rank has a batch. Collective, blocks. If throw_on_early_termination is set and a
    /// rank has run out of batches, throws Error on all ranks in the same step.
    void begin_step() { static_cast<void>(exchange_presence(true)); }

    /// Reports that this rank has run out of batches, and shadows the steps of the other ranks until no
    /// rank has a batch left. Collective; blocks until then. Throws as begin_step() does.
    void finish();

  private:
    struct Member {
        std::function<void()> shadow;
        std::function<void(int)> finish;
        std::function<void(const detail::JoinRound&)> set_round;
    };

    static void shadow_step(DataParallelSteps& steps);

    static void set_round(DataParallelSteps& steps, const detail::JoinRound& round);

    /// Exchanges which ranks have a batch. Returns whether any rank has one.
    bool exchange_presence(bool has_batch);

    [[noreturn]] void throw_early(const std::vector<std::uint8_t>& present);

    ProcessGroup& group_;
    JoinOptions options_;
    std::vector<Member> members_;
    int last_ = 0;
    std::size_t steps_ = 0;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/join.ipp"
#endif
