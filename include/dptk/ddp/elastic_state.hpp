/// ElasticState: the state of a training whose ranks change while it runs. Ranks that join get it from the
/// memory of a rank that has it, and after the loss of a rank all ranks continue at the end of the same step.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/comm/serializer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/ddp/distributed_data_parallel.hpp"
#include "dptk/optim/broadcast_optimizer_state.hpp"
#include "dptk/optim/optimizer.hpp"

namespace DPTK_NAMESPACE {

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
};

template <class Optimizer>
class ElasticOptimizer final : public ElasticPart {
  public:
    ElasticOptimizer(Optimizer& optimizer, std::size_t slots) : optimizer_(optimizer), slots_(slots) {}
    void commit() override {}
    void exchange(ProcessGroup& group, int root) override {
        broadcast_optimizer_state(group, optimizer_, slots_, root);
    }

  private:
    Optimizer& optimizer_;
    std::size_t slots_;
};

template <Resumable Position>
class ElasticPosition final : public ElasticPart {
  public:
    explicit ElasticPosition(Position& position) : position_(position), kept_(position.state()) {}
    void commit() override { kept_ = position_.state(); }
    void exchange(ProcessGroup& group, int root) override {
        group.broadcast_object(kept_, root);
        position_.restore(kept_, group);
    }

  private:
    Position& position_;
    decltype(std::declval<Position&>().state()) kept_;
};

template <Serializable Object>
class ElasticObject final : public ElasticPart {
  public:
    explicit ElasticObject(Object& object) : object_(object), kept_(object) {}
    void commit() override { kept_ = object_; }
    void exchange(ProcessGroup& group, int root) override {
        group.broadcast_object(kept_, root);
        object_ = kept_;
    }

  private:
    Object& object_;
    Object kept_;
};

}  // namespace detail

/// The state of a training loop in an elastic job:
///
///     dptk::ElasticState state(group, ddp, optimizer, cursor);
///     while (!cursor.done()) {
///         try {
///             net.forward_backward(cursor.batch());
///             ddp.synchronize(cursor.batch().size());
///             optimizer.step(ddp.parameters());
///             cursor.advance();
///             state.commit();
///         } catch (const dptk::MembershipChanged&) {
///             state.restore();
///         }
///     }
///
/// The group is one that init_process_group({.elastic = true}) has returned. A step that MembershipChanged
/// ends is repeated by the ranks that are then in the group, or they all take the result of a rank that has
/// completed it. The first step of each process throws MembershipChanged, so that restore() gives all ranks
/// the same state at the beginning as well. In a job that is not elastic, MembershipChanged is not thrown,
/// and commit() does nothing but count.
class ElasticState {
  public:
    /// The objects are: dptk's optimizers; classes with state() and restore(state, group), such as
    /// BatchCursor; and variables of any type with a Serializer, such as a random generator or a number. They
    /// must outlive this object. Values and buffers of `ddp` need not be listed. Not collective.
    /// Throws ArgumentError if the job is elastic and the buffers of `ddp` are in device memory.
    template <class... Objects>
    ElasticState(ProcessGroup& group, DistributedDataParallel& ddp, Objects&... objects)
        : ElasticState(group, ddp, Only{}) {
        (add(objects), ...);
    }
    ~ElasticState();
    ElasticState(const ElasticState&) = delete;
    ElasticState& operator=(const ElasticState&) = delete;

    /// Notes that this rank has completed a step: that all of its objects are at the end of the step. Call it
    /// right after the optimizer's step, with no call of the group in between. Does not communicate.
    void commit();

    /// Forms the group again, if its ranks have changed, and gives all of its ranks the state at the end of
    /// the last step that any of them has completed. rank() and size() of the group may have changed then.
    /// Memory that `ddp` has returned, such as gradient_memory(), must be asked for again. Collective;
    /// blocks. Throws PeerLostError if the job has ended, because too few ranks are left, and MismatchError
    /// on all ranks if their models differ.
    void restore();

    /// Returns the number of steps that have been completed since the beginning of the job.
    [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }

  private:
    struct Only {};

    ElasticState(ProcessGroup& group, DistributedDataParallel& ddp, Only);

    template <class Object>
    void add(Object& object) {
        static_assert(Optimizer<Object> || detail::Resumable<Object> || Serializable<Object>,
                      "dptk: an object of an ElasticState is one of dptk's optimizers, has state() and "
                      "restore(state, group), or has a Serializer");
        if constexpr (Optimizer<Object>) {
            parts_.push_back(
                std::make_unique<detail::ElasticOptimizer<Object>>(object, ddp_.parameters().size()));
        } else if constexpr (detail::Resumable<Object>) {
            parts_.push_back(std::make_unique<detail::ElasticPosition<Object>>(object));
        } else {
            parts_.push_back(std::make_unique<detail::ElasticObject<Object>>(object));
        }
    }

    void keep_buffers();

    /// Sends the state of a rank that has completed the most steps to all ranks. Collective.
    void exchange();

    ProcessGroup& group_;
    DistributedDataParallel& ddp_;
    std::vector<std::unique_ptr<detail::ElasticPart>> parts_;
    std::vector<std::byte> buffers_;  // at the end of the last step
    std::int64_t steps_ = 0;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/elastic_state.ipp"
#endif
