/// ElasticState: the state of a training whose ranks change while it runs. Ranks that join get it from the
/// memory of a rank that has it, and after the loss of a rank all ranks continue at the end of the same step.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dptk/comm/detail/elastic_group.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/comm/serializer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/ddp/detail/elastic_averages.hpp"
#include "dptk/ddp/distributed_data_parallel.hpp"
#include "dptk/ddp/reproducible.hpp"
#include "dptk/optim/broadcast_optimizer_state.hpp"
#include "dptk/optim/optimizer.hpp"

namespace DPTK_NAMESPACE {

template <Optimizer O>
class ShardedOptimizer;

namespace detail {

/// A class with a position that a group whose ranks have changed can continue at, such as BatchCursor.
template <class P>
concept Resumable = requires(P& part, const ProcessGroup& group) {
    { part.state() } -> Serializable;
    part.restore(part.state(), group);
};

/// One of the objects of an ElasticState.
class ElasticPart {
  public:
    virtual ~ElasticPart() = default;

    /// Keeps what a step that is not completed would change.
    virtual void commit() = 0;

    /// Gives all ranks the state that rank `root` has kept. Collective.
    virtual void exchange(ProcessGroup& group, int root) = 0;

    /// Keeps the state before an exchange(), and returns to it if the exchange fails.
    virtual void back_up() = 0;
    virtual void roll_back() = 0;
    virtual void forget_backup() = 0;
};

template <class Optimizer>
class ElasticOptimizer final : public ElasticPart {
  public:
    ElasticOptimizer(Optimizer& optimizer, std::size_t slots) : optimizer_(optimizer), slots_(slots) {}
    void commit() override {}
    void exchange(ProcessGroup& group, int root) override {
        broadcast_optimizer_state(group, optimizer_, slots_, root);
    }
    void back_up() override {
        for (std::size_t slot = 0; slot < slots_; ++slot) backup_.push_back(optimizer_.state(slot));
        if constexpr (requires { optimizer_.set_lr(optimizer_.lr()); }) lr_ = optimizer_.lr();
    }
    void roll_back() override {
        for (std::size_t slot = 0; slot < slots_; ++slot)
            optimizer_.set_state(slot, std::move(backup_[slot]));
        if constexpr (requires { optimizer_.set_lr(optimizer_.lr()); }) optimizer_.set_lr(lr_);
        forget_backup();
    }
    void forget_backup() override { backup_.clear(); }

  private:
    Optimizer& optimizer_;
    std::size_t slots_;
    std::vector<OptimizerState<typename Optimizer::Scalar>> backup_;
    double lr_ = 0;
};

/// A part that keeps a copy of its state at the last commit.
template <class State>
class ElasticCopy : public ElasticPart {
  public:
    explicit ElasticCopy(State state) : kept_(std::move(state)) {}
    void back_up() override { backup_ = kept_; }
    void roll_back() override { kept_ = std::move(*backup_); }
    void forget_backup() override { backup_.reset(); }

  protected:
    State kept_;

  private:
    std::optional<State> backup_;
};

template <Resumable Position>
class ElasticPosition final : public ElasticCopy<decltype(std::declval<Position&>().state())> {
  public:
    explicit ElasticPosition(Position& position)
        : ElasticPosition::ElasticCopy(position.state()), position_(position) {}
    void commit() override { this->kept_ = position_.state(); }
    void exchange(ProcessGroup& group, int root) override {
        group.broadcast_object(this->kept_, root);
        position_.restore(this->kept_, group);
    }

  private:
    Position& position_;
};

template <Serializable Object>
class ElasticObject final : public ElasticCopy<Object> {
  public:
    explicit ElasticObject(Object& object) : ElasticCopy<Object>(object), object_(object) {}
    void commit() override { this->kept_ = object_; }
    void exchange(ProcessGroup& group, int root) override {
        group.broadcast_object(this->kept_, root);
        object_ = this->kept_;
    }

  private:
    Object& object_;
};

}  // namespace detail

/// The state of a training loop in an elastic job:
///
///     dptk::ElasticState state(group, ddp, optimizer, cursor);
///     state.run([&] { return cursor.done(); }, [&] {
///         net.forward_backward(cursor.batch());
///         ddp.synchronize(cursor.batch().size());
///         optimizer.step(ddp.parameters());
///         cursor.advance();
///     });
///
/// The group is one that init_process_group({.elastic = true}) has returned. If its ranks change, all of them
/// continue at the end of the last step that any rank has completed; a step that was interrupted on all ranks
/// is repeated. Each process begins with such a change, so that all ranks get the same state at the beginning
/// as well. In a job that is not elastic, ranks do not change.
class ElasticState {
  public:
    /// The objects are: dptk's optimizers; classes with state() and restore(state, group), such as
    /// BatchCursor; and variables of any type with a Serializer, such as a random generator or a number. They
    /// must outlive this object, as `ddp` must. Values and buffers of `ddp` need not be listed. Not
    /// collective. Throws ArgumentError if the job is elastic and the buffers of `ddp` are in device memory.
    template <class... Objects>
    ElasticState(ProcessGroup& group, DistributedDataParallel& ddp, Objects&... objects)
        : ElasticState(group, averages_of(ddp)) {
        (add(objects), ...);
    }
    /// Accepts a ReproducibleDataParallel: the values are those of a job whose ranks do not change.
    template <class... Objects>
    ElasticState(ProcessGroup& group, ReproducibleDataParallel& ddp, Objects&... objects)
        : ElasticState(group, averages_of(ddp)) {
        (add(objects), ...);
    }
    /// Accepts a ShardedOptimizer, which also has the optimizer's state.
    template <class O, class... Objects>
    ElasticState(ProcessGroup& group, ShardedOptimizer<O>& sharded, Objects&... objects)
        : ElasticState(group, averages_of(sharded)) {
        (add(objects), ...);
    }
    ~ElasticState();
    ElasticState(const ElasticState&) = delete;
    ElasticState& operator=(const ElasticState&) = delete;

    /// Calls step() as long as done() returns false, and commit() after each step. Whenever the ranks change,
    /// calls restore(), and continues. After the last call that changes the objects, step() must not call the
    /// group any more, since it may be repeated then. Collective; blocks until all ranks are done.
    template <std::predicate Done, std::invocable Step>
    void run(Done&& done, Step&& step) {
        begin();
        while (true) {
            try {
                if (done()) {
                    detail::ElasticGroup::finish(group_);
                    group_.barrier();  // a rank that is lost until here may need this rank's state
                    return;
                }
                step();
                commit();
            } catch (const MembershipChanged&) {
                restore();
            }
        }
    }

    /// For loops that do not use run(), and call restore() before their first step: notes that this rank has
    /// completed a step, that is, that all of its objects are at the end of the step. Call it right after the
    /// optimizer's step, with no call of the group in between. Does not communicate. In an elastic job,
    /// throws ArgumentError if `ddp` has synchronized no gradients since the last commit().
    void commit();

    /// For loops that do not use run(): to be called after MembershipChanged, which calls of the group throw
    /// when its ranks change. Forms the group again, if its ranks have changed, and gives all of its ranks
    /// the state at the end of the last step that any of them has completed. rank() and size() of the group
    /// may have changed then. Memory that `ddp` has returned, such as gradient_memory(), must be asked for
    /// again. Collective; blocks. Throws PeerLostError if the job has ended, because too few ranks are left,
    /// MismatchError on all ranks if their models differ, and Error on all ranks if a part of the state of a
    /// ShardedOptimizer is lost.
    void restore();

    /// Returns the number of steps that have been completed since the beginning of the job.
    [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }

    /// Returns how often restore() has returned in this process: a program that has a state that depends on
    /// rank() or size() computes it again when this number grows.
    [[nodiscard]] std::int64_t changes() const noexcept { return changes_; }

  private:
    template <class Model>
    friend class Trainer;

    using Averages = detail::ElasticAverages;
    class AveragesOfDdp;
    class AveragesOfReproducible;

    [[nodiscard]] static std::unique_ptr<Averages> averages_of(DistributedDataParallel& ddp);
    [[nodiscard]] static std::unique_ptr<Averages> averages_of(ReproducibleDataParallel& ddp);
    template <class O>
    [[nodiscard]] static std::unique_ptr<Averages> averages_of(ShardedOptimizer<O>& sharded) {
        return sharded.elastic_averages();
    }

    ElasticState(ProcessGroup& group, std::unique_ptr<Averages> averages);

    template <class Object>
    void add(Object& object) {
        static_assert(Optimizer<Object> || detail::Resumable<Object> || Serializable<Object>,
                      "dptk: an object of an ElasticState is one of dptk's optimizers, has state() and "
                      "restore(state, group), or has a Serializer");
        if constexpr (Optimizer<Object>) {
            parts_.push_back(std::make_unique<detail::ElasticOptimizer<Object>>(object, slots_));
        } else if constexpr (detail::Resumable<Object>) {
            parts_.push_back(std::make_unique<detail::ElasticPosition<Object>>(object));
        } else {
            parts_.push_back(std::make_unique<detail::ElasticObject<Object>>(object));
        }
    }

    /// Begins with the objects as they are now.
    void begin();
    void keep_objects();
    void keep_buffers();

    /// Notes a point that this rank has reached, as commit() does, also if no gradients were synchronized. If
    /// `keeps_values`, what changes values until the next point is undone by a restore().
    void note_point(bool keeps_values);

    /// Sends the state of a rank that has completed the most steps, the last of them in the latest
    /// generation, to all ranks: of those whose state is complete. If that fails, ranks with another state
    /// return to it, since it may then be the best one left. Collective.
    void exchange();
    void exchange_from(int root);

    [[nodiscard]] std::vector<std::byte> copy_values();
    void write_values(std::span<const std::byte> values);

    ProcessGroup& group_;
    std::unique_ptr<Averages> averages_;
    std::size_t slots_ = 0;
    std::vector<std::unique_ptr<detail::ElasticPart>> parts_;
    std::vector<std::byte> buffers_;  // at the end of the last step
    std::vector<std::byte> values_;   // those at the last point, if they are kept
    std::int64_t steps_ = 0;
    std::int64_t generation_ = 0;  // in which the last of them was completed
    std::int64_t changes_ = 0;
    std::size_t synchronized_ = 0;  // how many steps `ddp` had synchronized at the last commit
    std::vector<detail::MemberId> members_;
    std::int64_t steps_at_change_ = -1;
    int changes_without_step_ = 0;  // among the same members
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/elastic_state.ipp"
#endif
