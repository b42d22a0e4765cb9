/// Training where ranks have different numbers of batches, and none knows how many the others have. Those
/// that have run out shadow the steps of the others. PyTorch's Join.
///
/// Where the numbers of samples are known in each step, none of this is needed: begin_step(0) is a step
/// without samples.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/ddp/distributed_data_parallel.hpp"
#include "dptk/ddp/sharded_optimizer.hpp"

namespace dptk {

/// Under PyTorch's names. Equal on all ranks.
struct JoinOptions {
    /// Averages without sample counts: the sum over those that still have batches, divided by the number of
    /// all ranks; or by the number of those. Sample counts weigh samples in either case.
    bool divide_by_initial_world_size = true;
    /// As soon as one rank has run out, all ranks throw.
    bool throw_on_early_termination = false;
};

/// All ranks: begin_step() before each batch, and finish() behind the last one.
class Join {
  public:
    /// Throws MismatchError on all ranks where the options differ. Collective; the group must outlive this.
    explicit Join(ProcessGroup& group, JoinOptions options = {}) : group_(group), options_(options) {
        detail::check_equal_tables(
            group_, "JoinOptions",
            detail::text("divide_by_initial_world_size ", options.divide_by_initial_world_size,
                         "\nthrow_on_early_termination ", options.throw_on_early_termination));
    }

    /// What else communicates in a step, in the order in which a step does it: shadow() makes the collectives
    /// of one step on a rank that has no batch; finish(last) is called on all ranks when none has, where
    /// `last` is a rank that was among the last to have one.
    void add(std::function<void()> shadow, std::function<void(int last)> finish = {}) {
        members_.push_back({std::move(shadow), std::move(finish), {}});
    }

    /// At the end all ranks get the values of a rank that was among the last.
    void add(DistributedDataParallel& ddp) {
        members_.push_back({[&ddp] { ddp.shadow(); }, [&ddp](int last) { ddp.broadcast_values(last); },
                            [&ddp](const JoinRound& round) { ddp.set_joined(round); }});
    }

    /// A shadow goes on to step its part. `between`: what the program calls that communicates between
    /// synchronize() and step(), such as sharded.clip_grad_norm().
    template <class O>
    void add(ShardedOptimizer<O>& sharded, std::function<void()> between = {}) {
        const auto shadow = [&sharded, between = std::move(between)] {
            sharded.shadow();
            if (between) between();
            sharded.step();
        };
        members_.push_back({shadow, {}, [&sharded](const JoinRound& round) { sharded.set_joined(round); }});
    }

    /// This rank has a batch. Collective, blocks. Throws Error on all ranks alike, in the same step, where
    /// one has run out and the options say so.
    void begin_step() { static_cast<void>(meet(true)); }

    /// This rank has run out of batches: does what the others' steps need until they have, too. Collective,
    /// blocks until then. Throws as begin_step().
    void finish() {
        while (meet(false)) {
            for (const Member& member : members_) member.shadow();
        }
        for (const Member& member : members_) {
            if (member.set_round) member.set_round({});
            if (member.finish) member.finish(last_);
        }
        steps_ = 0;
    }

  private:
    struct Member {
        std::function<void()> shadow;
        std::function<void(int)> finish;
        std::function<void(const JoinRound&)> set_round;
    };

    /// Returns whether any rank has a batch.
    bool meet(bool has_batch) {
        const std::vector<std::uint8_t> present =
            group_.all_gather_value(static_cast<std::uint8_t>(has_batch ? 1 : 0));
        const auto count = static_cast<int>(std::ranges::count(present, 1));
        if (count > 0 && count < group_.size() && options_.throw_on_early_termination) throw_early(present);
        if (count == 0) return false;
        last_ = static_cast<int>(std::ranges::find(present, 1) - present.begin());
        const JoinRound round{count, last_, !options_.divide_by_initial_world_size};
        for (const Member& member : members_) {
            if (member.set_round) member.set_round(round);
        }
        ++steps_;
        return true;
    }

    [[noreturn]] void throw_early(const std::vector<std::uint8_t>& present) {
        const auto first = std::ranges::find(present, 0) - present.begin();
        detail::throw_agreed(group_, Error(detail::text("rank ", first, " has run out of batches after ",
                                                        steps_, " steps, and others have not")));
    }

    ProcessGroup& group_;
    JoinOptions options_;
    std::vector<Member> members_;
    int last_ = 0;
    std::size_t steps_ = 0;
};

}  // namespace dptk
