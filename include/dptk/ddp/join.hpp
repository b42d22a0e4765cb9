/// Training where ranks have different numbers of batches, and none knows how many the others have. Those
/// that have run out shadow the steps of the others. PyTorch's Join.
///
/// Where the numbers of samples are known in each step, none of this is needed: begin_step(0) is a step
/// without samples.
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

/// Under PyTorch's names. Equal on all ranks.
struct JoinOptions {
    /// GradientPostprocessing without sample counts: the sum over those that still have batches, divided by
    /// the number of all ranks; or by the number of those. Sample counts weigh samples in either case.
    bool divide_by_initial_world_size = true;
    /// As soon as one rank has run out, all ranks throw.
    bool throw_on_early_termination = false;
};

/// All ranks: begin_step() before each batch, and finish() behind the last one.
class Join {
  public:
    /// Throws MismatchError on all ranks where the options differ. Collective; the group must outlive this.
    explicit Join(ProcessGroup& group, JoinOptions options = {});

    /// What else communicates in a step, in the order in which a step does it: shadow() makes the collectives
    /// of one step on a rank that has no batch; finish(last) is called on all ranks when none has, where
    /// `last` is a rank that was among the last to have one.
    void add(std::function<void()> shadow, std::function<void(int last)> finish = {});

    /// At the end all ranks get the values of a rank that was among the last.
    void add(DistributedDataParallel& ddp);

    /// A shadow goes on to step its part. `between`: what the program calls that communicates between
    /// synchronize() and step(), such as sharded.clip_grad_norm().
    template <class O>
    void add(ShardedOptimizer<O>& sharded, std::function<void()> between = {}) {
        const auto shadow = [&sharded, between = std::move(between)] {
            sharded.shadow();
            if (between) between();
            sharded.step();
        };
        members_.push_back(
            {shadow, {}, [&sharded](const detail::JoinRound& round) { sharded.set_joined(round); }});
    }

    /// This rank has a batch. Collective, blocks. Throws Error on all ranks alike, in the same step, where
    /// one has run out and the options say so.
    void begin_step() { static_cast<void>(meet(true)); }

    /// This rank has run out of batches: does what the others' steps need until they have, too. Collective,
    /// blocks until then. Throws as begin_step().
    void finish();

  private:
    struct Member {
        std::function<void()> shadow;
        std::function<void(int)> finish;
        std::function<void(const detail::JoinRound&)> set_round;
    };

    /// Returns whether any rank has a batch.
    bool meet(bool has_batch);

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
