/// Sharded optimizer, ZeRO stage 1 (Rajbhandari et al., ZeRO, SC 2020): each rank receives an equal part of
/// the averaged gradients, updates only the parameters of this part, and keeps only this part of the
/// optimizer's state. The new values are then sent to all ranks.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/detail/elastic_group.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/net/host.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/trace.hpp"
#include "dptk/ddp/clip.hpp"
#include "dptk/ddp/data_parallel_steps.hpp"
#include "dptk/ddp/detail/elastic_averages.hpp"
#include "dptk/ddp/detail/gradient_reducer.hpp"
#include "dptk/ddp/detail/shard_copies.hpp"
#include "dptk/ddp/detail/sharded_parameters.hpp"
#include "dptk/optim/optimizer.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

template <class O>
class ShardedAverages;

}  // namespace detail

/// Wraps a function step(slot, value, gradient) as an optimizer. A slot is a part of a parameter, and is
/// the same part in each step: this rank's part, or with fused steps 64 KiB of it.
template <std::floating_point T>
class FunctionOptimizer {
  public:
    using Scalar = T;  ///< The element type of values and gradients.
    /// The type of the function. Its arguments are a slot, the slot's values, which the function updates,
    /// and the averaged gradients of these values.
    using Function = std::function<void(std::size_t, std::span<T>, std::span<const T>)>;

    /// Accepts the function that steps one slot.
    explicit FunctionOptimizer(Function function) : function_(std::move(function)) {}

    /// Calls the function with these arguments.
    void step(std::size_t slot, std::span<T> value, std::span<const T> gradient) {
        function_(slot, value, gradient);
    }

    /// Returns an empty state: dptk does not manage the function's state.
    [[nodiscard]] OptimizerState<T> state(std::size_t) const { return {}; }
    /// Does nothing.
    void set_state(std::size_t, const OptimizerState<T>&) {}

  private:
    Function function_;
};

/// Options of ShardedOptimizer, in addition to DistributedDataParallelOptions. They must be equal on all
/// ranks.
struct ShardedOptimizerOptions {
    /// Whether step() computes the averages as well.
    FusedStep fused_step = FusedStep::automatic;
    /// Allows the program to keep its values in value_memory(i), which avoids copies. The name is
    /// PyTorch's.
    bool parameters_as_bucket_view = false;
};

/// Replaces DistributedDataParallel and the optimizer in a training loop: call begin_step(), backward (with
/// marks under Ready::marked), synchronize(), and step(). Containers, options and sample counts are those
/// of DistributedDataParallel. All values must have the optimizer's element type; gradients may have another
/// floating-point type, such as bfloat16, and are converted for the optimizer.
///
/// After synchronize(), this rank has its part of the averages; with fused steps, only after step(), or after
/// a call that clips or unscales. The program's own gradients are unchanged.
///
/// In an elastic job, pass it to an ElasticState instead of DDP and optimizer. Each step then sends this
/// rank's part of the optimizer's state to another rank, so that none is lost with a rank: docs/elastic.md
/// says what that costs. Fused steps, parameters_as_bucket_view and FunctionOptimizer
/// are not supported there.
template <Optimizer O>
class ShardedOptimizer : public DataParallelSteps {
  public:
    using Scalar = typename O::Scalar;  ///< The element type of the optimizer and of all values.

    /// Accepts values and gradients in two containers. Collective. Throws on all ranks as
    /// DistributedDataParallel does; throws ArgumentError if a value's element type differs from the
    /// optimizer's. The group must outlive this object.
    template <class Values, class Gradients>
        requires(!std::same_as<std::remove_cvref_t<Gradients>, O>)
    ShardedOptimizer(ProcessGroup& group, Values&& values, Gradients&& gradients, O optimizer,
                     DistributedDataParallelOptions options = {}, ShardedOptimizerOptions sharded = {})
        : ShardedOptimizer(group,
                           ParameterSource(std::forward<Values>(values), std::forward<Gradients>(gradients)),
                           std::move(optimizer), std::move(options), sharded) {}

    /// Accepts a model with a for_each_parameter, or a container of pairs of value and gradient.
    template <class Model>
        requires(!std::same_as<std::remove_cvref_t<Model>, ParameterSource>)
    ShardedOptimizer(ProcessGroup& group, Model&& model, O optimizer,
                     DistributedDataParallelOptions options = {}, ShardedOptimizerOptions sharded = {})
        : ShardedOptimizer(group, ParameterSource(std::forward<Model>(model)), std::move(optimizer),
                           detail::with_buffers_of(model, std::move(options)), sharded) {}

    /// Accepts a ParameterSource, which finds the parameters.
    ShardedOptimizer(ProcessGroup& group, ParameterSource source, O optimizer,
                     DistributedDataParallelOptions options = {}, ShardedOptimizerOptions sharded = {})
        : DataParallelSteps(make_reducer(group, std::move(source), options, sharded)),
          optimizer_(std::move(optimizer)),
          has_value_memory_(sharded.parameters_as_bucket_view) {
        check_parameters();
        if (group.is_elastic()) {
            copies_ = std::make_unique<Copies>();
        } else if (options.init_sync) {
            reducer().broadcast_values();
        }
        constexpr std::size_t cached = 65536 / sizeof(Scalar);
        typename Shards::Options pieces{.has_value_memory = has_value_memory_};
        if (is_fused()) pieces.largest_piece = cached;
        shards_ = std::make_unique<Shards>(reducer(), pieces);
    }

    /// Returns whether step() computes the averages. Equal on all ranks.
    [[nodiscard]] bool is_fused() const noexcept {
        return reducer().outcome() == detail::GradientReducer::Outcome::unreduced;
    }

    /// Returns whether a step is fused with FusedStep::automatic. Collective; all ranks must pass the same
    /// options.
    [[nodiscard]] static bool is_fused_by_default(ProcessGroup& group,
                                                  const DistributedDataParallelOptions& options) {
        if (group.is_elastic()) return false;
        detail::Engine& engine = group.engine();
        if (options.ready == Ready::marked && !engine.competes_with_compute()) return false;
        const std::shared_ptr<void> memory = engine.allocate(1);
        return !engine.peer_memory({memory.get(), 1, DType::u8}).empty();
    }

    /// Returns whether each rank has access to the gradients and values of all ranks. Equal on all ranks.
    [[nodiscard]] bool shares_memory() const noexcept { return shards_->is_shared(); }

    /// Broadcasts the values of rank `root` to all ranks. Collective, blocks.
    void broadcast_values(int root) {
        reducer().broadcast_values(root);
        shards_->read_values();
    }

    /// Steps this rank's part, and sends its values to all ranks. Call it after synchronize(). Values may
    /// have moved since then. Collective, blocks. Throws ArgumentError if synchronize() was not called since
    /// the last step(). An exception of the optimizer, or of the model's for_each_parameter, aborts the job.
    void step() {
        check_synchronized("step");
        const detail::PurposeScope here = reducer().purpose("step()");
        reducer().group().engine().control()->fail_job_on_error([&] {
            reducer().read_all_addresses();
            if (is_fused() && shards_->is_shared()) {
                step_in_shared_memory();
            } else {
                average();
                step_and_gather();
            }
        });
        stepped_ = reducer().steps();
        clipped_ = 0;
    }

    /// Scales all averages so that their total norm is at most `max_norm`, as clip_grad_norm does in one
    /// process; step() multiplies them. Returns the norm before scaling. Call it after synchronize().
    /// Collective, blocks. Throws ArgumentError if synchronize() was not called since the last step().
    double clip_grad_norm(double max_norm) {
        check_synchronized("clip_grad_norm");
        const detail::PurposeScope here = reducer().purpose("clip_grad_norm()");
        const double norm = norm_of_averages();
        factor_ = detail::clip_factor(norm, max_norm);
        clipped_ = reducer().steps();
        return norm;
    }

    /// Clamps each average to [-limit, limit]. Call it after synchronize(). Collective if the step is fused,
    /// and blocks. Throws ArgumentError if synchronize() was not called since the last step().
    void clip_grad_value(double limit) {
        check_synchronized("clip_grad_value");
        const detail::PurposeScope here = reducer().purpose("clip_grad_value()");
        average();
        scale_averages();
        for_each_gradient([&]<class T>(T& element) {
            const auto bound = static_cast<decltype(wide(element))>(limit);
            element = static_cast<T>(std::clamp(wide(element), -bound, bound));
        });
    }

    /// Divides all averages by `scale`, for losses that were multiplied by it. Returns whether all are
    /// finite, with the same result on all ranks. Collective, blocks. Throws ArgumentError if synchronize()
    /// was not called since the last step().
    [[nodiscard]] bool unscale(double scale) {
        check_synchronized("unscale");
        const detail::PurposeScope here = reducer().purpose("unscale()");
        average();
        scale_averages();
        bool finite = true;
        for_each_gradient([&]<class T>(T& element) {
            using Wide = decltype(wide(element));
            element = static_cast<T>(static_cast<Wide>(static_cast<double>(wide(element)) / scale));
            finite = finite && std::isfinite(wide(element));
        });
        return reducer().group().all_reduce_value(static_cast<std::uint8_t>(finite ? 0 : 1), ReduceOp::max) ==
               0;
    }

    /// Returns the 2-norm of the averages of the last step. Call it after synchronize(), or, with
    /// parameters_as_bucket_view, also after step(). Collective, blocks.
    [[nodiscard]] double gradient_norm() {
        const detail::PurposeScope here = reducer().purpose("gradient_norm()");
        return norm_of_averages();
    }

    using DataParallelSteps::gradient_memory;
    /// Returns the memory of gradient `i` in its bucket, for gradients of the optimizer's element type: see
    /// DataParallelSteps::gradient_memory. After step() its contents are unspecified, unless
    /// parameters_as_bucket_view is set.
    [[nodiscard]] std::span<Scalar> gradient_memory(std::size_t i) { return gradient_memory<Scalar>(i); }

    /// Returns memory that contains the current values of parameter `i` after construction and after each
    /// step(). A program that keeps its values in this memory avoids copies, and may start to do so between
    /// any two steps. Throws ArgumentError without parameters_as_bucket_view, and for an ignored parameter.
    [[nodiscard]] std::span<Scalar> value_memory(std::size_t i) {
        if (!has_value_memory_)
            throw ArgumentError("value_memory() requires ShardedOptimizerOptions::parameters_as_bucket_view");
        reducer().check_in_bucket(i);
        return shards_->value_memory(reducer().first_of_tied(i));
    }

    /// Returns the owner of the memory that value_memory(i) returns, which exists as long as this object, or
    /// as a copy of the owner.
    [[nodiscard]] std::shared_ptr<void> value_memory_owner(std::size_t i) const {
        reducer().check_in_bucket(i);
        return shards_->value_memory_owner(reducer().first_of_tied(i));
    }

    /// Sets how the optimizer steps these parameters, and those that share their values, from now on. All
    /// ranks must pass the same ones. Throws ArgumentError if a parameter does not exist, or a number is
    /// negative or not finite.
    void set_group(std::span<const std::size_t> of_parameters, const ParameterGroup& group)
        requires requires(O& optimizer) { optimizer.set_group(std::span<const std::size_t>(), group); }
    {
        std::vector<std::size_t> slots;
        for (const std::size_t parameter : of_parameters) {
            check_parameter("set_group", parameter);
            for (const std::size_t slot : slots_of(reducer().first_of_tied(parameter))) slots.push_back(slot);
        }
        optimizer_.set_group(slots, group);
        for (const std::size_t parameter : of_parameters) groups_[reducer().first_of_tied(parameter)] = group;
    }

    /// Returns the optimizer that steps this rank's part, for example to change the learning rate. All
    /// ranks must make the same changes.
    [[nodiscard]] O& optimizer() noexcept { return optimizer_; }

    /// The number of arrays and of steps of the state of each parameter.
    struct StateSize {
        std::size_t arrays = 0;  ///< Each has as many elements as the parameter.
        std::int64_t steps = 0;  ///< The steps so far.
    };

    /// Returns the size of the state: no arrays before the first step. Collective, blocks.
    [[nodiscard]] StateSize state_size() {
        std::int64_t sizes[] = {0, 0};  // a rank may have no piece
        for (std::size_t slot = 0; slot < pieces().size(); ++slot) {
            const auto& own = std::as_const(optimizer_).state(slot);
            sizes[0] = std::max(sizes[0], static_cast<std::int64_t>(own.arrays.size()));
            sizes[1] = std::max(sizes[1], own.steps);
        }
        const detail::PurposeScope here = reducer().purpose("state_size()");
        reducer().group().all_reduce(sizes, ReduceOp::max);
        return {static_cast<std::size_t>(sizes[0]), sizes[1]};
    }

    /// Returns whether parameter `i` has a state: it is not ignored, and not tied to an earlier one. Throws
    /// ArgumentError if there is no such parameter.
    [[nodiscard]] bool has_state(std::size_t i) const {
        check_parameter("has_state", i);
        return reducer().buckets().has(i) && reducer().first_of_tied(i) == i;
    }

    /// Returns the optimizer's state of all parameters, in registration order, on rank `root`, and an empty
    /// vector on the other ranks. Its form does not depend on the number of ranks. Collective, blocks.
    [[nodiscard]] std::vector<OptimizerState<Scalar>> state(int root = 0) {
        const StateSize size = state_size();
        std::vector<OptimizerState<Scalar>> all;
        for (std::size_t i = 0; i < parameters().size(); ++i) {
            OptimizerState<Scalar> one;
            if (has_state(i)) {
                one.steps = size.steps;
                for (std::size_t array = 0; array < size.arrays; ++array)
                    one.arrays.push_back(state_array(i, array, root));
            }
            if (reducer().group().rank() == root) all.push_back(std::move(one));
        }
        return all;
    }

    /// Returns one of state_size().arrays arrays of parameter `i` on rank `root`, and an empty one on the
    /// other ranks: for states that do not fit into one rank's memory. Zeros if there are not that many
    /// arrays. Collective, blocks. Throws ArgumentError if the parameter has no state.
    [[nodiscard]] std::vector<Scalar> state_array(std::size_t i, std::size_t array, int root = 0) {
        if (!has_state(i))
            throw ArgumentError(
                detail::text("state_array: parameter ", parameters()[i].name, " is ignored, or tied"));
        const detail::PurposeScope here = reducer().purpose("state_array()");
        ProcessGroup& group = reducer().group();
        std::vector<Scalar> own;
        for (const std::size_t slot : slots_of(i)) {
            const auto& state = std::as_const(optimizer_).state(slot);
            own.resize(own.size() + pieces()[slot].count);
            if (array < state.arrays.size())
                detail::copy(state.arrays[array],
                             own.end() - static_cast<std::ptrdiff_t>(pieces()[slot].count));
        }
        if (group.rank() != root) {
            if (!own.empty()) group.send(own, root);
            return {};
        }
        const auto [b, position] = reducer().buckets().place(i);
        const detail::GradientBucket& bucket = reducer().buckets()[b];
        const std::size_t begin = bucket.offset(position), end = begin + parameters()[i].count;
        const std::size_t part = bucket.part(0, group.size()).count;
        std::vector<Scalar> whole(parameters()[i].count);
        for (int rank = 0; rank < group.size(); ++rank) {
            const std::size_t first = std::max(begin, static_cast<std::size_t>(rank) * part);
            const std::size_t last = std::min(end, (static_cast<std::size_t>(rank) + 1) * part);
            if (first >= last) continue;
            const std::span<Scalar> elements(whole.data() + (first - begin), last - first);
            if (rank == root) {
                detail::copy(own, elements.begin());
            } else {
                group.recv(elements, rank);
            }
        }
        return whole;
    }

    /// Returns the optimizer's state of parameter `i` on all ranks; an empty one if the parameter has none.
    /// Collective, blocks.
    [[nodiscard]] OptimizerState<Scalar> state_on_all(std::size_t i) {
        const StateSize size = state_size();
        OptimizerState<Scalar> state;
        if (!has_state(i) || size.steps == 0) return state;
        state.steps = size.steps;
        for (std::size_t array = 0; array < size.arrays; ++array) {
            std::vector<Scalar> elements = state_array(i, array);
            elements.resize(parameters()[i].count);
            const detail::PurposeScope here = reducer().purpose("state_on_all()");
            reducer().group().broadcast(elements, 0);
            state.arrays.push_back(std::move(elements));
        }
        return state;
    }

    /// Restores a state that state() returned, even with another number of ranks: each rank uses its own
    /// part. All ranks must pass the same state. Throws ArgumentError if the state belongs to other
    /// parameters. Does not communicate.
    void load_state(const std::vector<OptimizerState<Scalar>>& all) {
        if (all.size() != parameters().size())
            throw ArgumentError(detail::text("load_state: expected an optimizer's state of ",
                                             parameters().size(), " parameters, got ", all.size()));
        for (std::size_t i = 0; i < all.size(); ++i) check_state_of(i, all[i]);
        for (std::size_t i = 0; i < all.size(); ++i) load_state_of(i, all[i]);
    }

    /// Restores the state of parameter `i`, of which state() returns one for each parameter. All ranks must
    /// pass the same state. Throws ArgumentError if it belongs to another parameter. Does not communicate.
    void load_state_of(std::size_t i, const OptimizerState<Scalar>& whole) {
        check_state_of(i, whole);
        for (const std::size_t slot : slots_of(i))
            optimizer_.set_state(slot, detail::state_of_piece(whole, pieces()[slot]));
        if (copies_) copies_->load(i, whole);
    }

  private:
    friend class ElasticState;
    friend class detail::ShardedAverages<O>;

    using Shards = detail::ShardedParameters<Scalar>;
    using Piece = typename Shards::Piece;
    using Copies = detail::ShardCopies<Scalar>;

    [[nodiscard]] static std::unique_ptr<detail::GradientReducer> make_reducer(
        ProcessGroup& group, ParameterSource source, const DistributedDataParallelOptions& options,
        const ShardedOptimizerOptions& sharded) {
        if (group.is_elastic()) return make_elastic_reducer(group, std::move(source), options, sharded);
        detail::check_equal_tables(
            group, "ShardedOptimizerOptions",
            detail::text("ready ", options.ready == Ready::marked ? "marked" : "at_synchronize",
                         "\nfused_step ", detail::fused_step_name(sharded.fused_step),
                         "\nparameters_as_bucket_view ", sharded.parameters_as_bucket_view));
        const bool is_fused = sharded.fused_step == FusedStep::automatic
                                  ? is_fused_by_default(group, options)
                                  : sharded.fused_step == FusedStep::yes;
        using Outcome = detail::GradientReducer::Outcome;
        return std::make_unique<detail::GradientReducer>(group, std::move(source), options,
                                                         is_fused ? Outcome::unreduced : Outcome::in_parts);
    }

    [[nodiscard]] static std::unique_ptr<detail::GradientReducer> make_elastic_reducer(
        ProcessGroup& group, ParameterSource source, const DistributedDataParallelOptions& options,
        const ShardedOptimizerOptions& sharded) {
        if (std::same_as<O, FunctionOptimizer<Scalar>>) group.refuse_elastic("FunctionOptimizer");
        if (sharded.parameters_as_bucket_view) group.refuse_elastic("parameters_as_bucket_view");
        using Outcome = detail::GradientReducer::Outcome;
        return detail::GradientReducer::make(
            group, std::move(source), options,
            sharded.fused_step == FusedStep::yes ? Outcome::unreduced : Outcome::in_parts);
    }

    /// Returns an element in the type in which it is computed: f32 for f16 and bf16.
    template <class T>
    [[nodiscard]] static auto wide(const T& element) {
        return static_cast<typename detail::Arithmetic<T>::type>(element);
    }

    /// The pieces of this rank. A piece's index is its slot.
    [[nodiscard]] const std::vector<Piece>& pieces() const noexcept { return shards_->pieces(); }

    /// Returns the slots of this rank's pieces of a parameter, in the order of their elements.
    [[nodiscard]] std::vector<std::size_t> slots_of(std::size_t parameter) const {
        std::vector<std::size_t> slots;
        for (std::size_t slot = 0; slot < pieces().size(); ++slot)
            if (pieces()[slot].parameter == parameter) slots.push_back(slot);
        return slots;
    }

    void check_parameter(std::string_view who, std::size_t i) const {
        if (i >= parameters().size())
            throw ArgumentError(
                detail::text(who, ": expected parameters below ", parameters().size(), ", found ", i));
    }

    void check_state_of(std::size_t i, const OptimizerState<Scalar>& state) const {
        check_parameter("load_state", i);
        for (const std::vector<Scalar>& array : state.arrays) {
            if (array.size() != parameters()[i].count)
                throw ArgumentError(detail::text("load_state: parameter ", parameters()[i].name, " has ",
                                                 parameters()[i].count,
                                                 " elements, but its optimizer's state has ", array.size()),
                                    {.parameter = parameters()[i].name});
        }
    }

    void check_parameters() {
        std::string problem;
        if (!reducer().ties_values_as_gradients())
            problem =
                "some parameters have the same value but separate gradients, or the reverse: tie both, so "
                "that "
                "the value is stepped once";
        for (const ParameterRef& parameter : parameters()) {
            if (parameter.dtype != dtype_of<Scalar> && problem.empty())
                problem = detail::text("parameter ", parameter.name, " is of ", dtype_name(parameter.dtype),
                                       ", but the optimizer is of ", dtype_name(dtype_of<Scalar>));
        }
        detail::check_no_problem<ArgumentError>(reducer().group(), problem);
    }

    void check_synchronized(std::string_view who) const {
        if (reducer().steps() == stepped_)
            throw ArgumentError(detail::text(who, "() without synchronize(): call synchronize() first"));
    }

    /// Averages this rank's pieces, unless that has been done. Collective, blocks.
    void average() {
        if (!is_fused() || averaged_ == reducer().steps()) return;
        if (shards_->is_shared()) {
            wait_for_all_ranks();  // they have filled their buckets
            for (const Piece& piece : pieces()) shards_->reduce(piece, reducer().reduction());
            wait_for_all_ranks();  // they do not read other ranks' buckets any more
        } else {
            shards_->reduce_all(reducer().reduction());
        }
        averaged_ = reducer().steps();
    }

    void wait_for_all_ranks() {
        const auto begin = trace::Clock::now();
        reducer().group().barrier();
        reducer().record_communication("wait for ranks", begin);
    }

    /// Multiplies the averages by what clip_grad_norm() has left to step().
    void scale_averages() {
        for (const Piece& piece : pieces()) scale_average(piece);
        clipped_ = 0;
    }

    void scale_average(const Piece& piece) {
        if (clipped_ != reducer().steps() || factor_ == 1) return;
        for_each_element(piece, [&]<class T>(T& element) {
            using Wide = decltype(wide(element));
            element = static_cast<T>(wide(element) * static_cast<Wide>(factor_));
        });
    }

    /// Collective, blocks.
    [[nodiscard]] double norm_of_averages() {
        average();
        scale_averages();
        double sum = 0;
        for_each_gradient([&](auto& element) {
            const auto value = static_cast<double>(wide(element));
            sum += value * value;
        });
        return std::sqrt(reducer().group().all_reduce_value(sum));
    }

    void step_piece(std::size_t slot) {
        const Piece& piece = pieces()[slot];
        scale_average(piece);
        optimizer_.step(slot, shards_->value(piece), shards_->converted_gradient(piece));
    }

    void step_and_gather() {
        {
            const trace::Span span("sharded step");
            has_stepped_ = true;
            for (std::size_t slot = 0; slot < pieces().size(); ++slot) step_piece(slot);
        }
        const auto begin = trace::Clock::now();
        // A rank that has the values of all others then knows that no state is lost with one of them.
        if (copies_) copies_->add_step(reducer().group(), copy_pieces(), keeper_, kept_, kept_pieces());
        shards_->gather_values();
        reducer().record_communication("gather values", begin);
    }

    void step_in_shared_memory() {
        const trace::Span span("fused step");
        const bool are_averaged = averaged_ == reducer().steps();
        wait_for_all_ranks();  // they have filled their buckets, and do not read their values any more
        for (std::size_t slot = 0; slot < pieces().size(); ++slot) {
            if (!are_averaged) shards_->reduce(pieces()[slot], reducer().reduction());
            step_piece(slot);
            shards_->write_to_peers(pieces()[slot]);
        }
        averaged_ = reducer().steps();
        wait_for_all_ranks();
        shards_->copy_values_out();
    }

    template <class Action>
    void for_each_gradient(Action&& action) {
        for (const Piece& piece : pieces()) for_each_element(piece, action);
    }

    template <class Action>
    void for_each_element(const Piece& piece, Action&& action) {
        const Buffer gradient = shards_->gradient(piece);
        visit_dtype(gradient.dtype, [&](auto zero) {
            using T = decltype(zero);
            if constexpr (detail::Real<T>) {
                for (T& element : std::span(static_cast<T*>(gradient.data), gradient.count)) action(element);
            }
        });
    }

    // ---- in an elastic job

    [[nodiscard]] std::unique_ptr<detail::ElasticAverages> elastic_averages() {
        return std::make_unique<detail::ShardedAverages<O>>(*this);
    }

    /// Returns a copy of this rank's part of the state.
    [[nodiscard]] typename Copies::Copy copy_pieces() {
        typename Copies::Copy copy = copies_->make();
        for (std::size_t slot = 0; slot < pieces().size(); ++slot)
            copy.add(pieces()[slot], std::as_const(optimizer_).state(slot));
        return copy;
    }

    [[nodiscard]] auto values_of_pieces() const {
        return [this](const Piece& piece) { return shards_->value(piece); };
    }

    /// Returns the pieces that this rank keeps copies of, but does not step.
    [[nodiscard]] std::vector<Piece> kept_pieces() const {
        if (reducer().group().size() == 1) return {};
        return shards_->pieces_of(kept_);
    }

    void commit() {
        reducer().read_all_addresses();
        has_stepped_ = false;
        if (copies_->version().generation == 0) {
            copies_->begin_with(copy_pieces(), values_of_pieces());
        } else {
            copies_->commit(values_of_pieces());
        }
    }

    /// See ElasticAverages::can_continue().
    [[nodiscard]] bool can_continue(ProcessGroup& group, const detail::ElasticAverages::Point& point) {
        had_stepped_ = has_stepped_;
        std::string table;
        std::vector<std::size_t> counts;
        for (std::size_t i = 0; i < parameters().size(); ++i) {
            counts.push_back(has_state(i) ? parameters()[i].count : 0);
            table += detail::text(parameters()[i].name, ": ", counts.back(), " elements to step\n");
        }
        detail::check_equal_tables(group, "models", table);
        continued_ = {.version = copies_->version(), .has_values = !has_stepped_ || point.keeps_values};
        if constexpr (requires { optimizer_.set_lr(optimizer_.lr()); }) {
            if (lr_before_) optimizer_.set_lr(*lr_before_);  // the last attempt to continue has failed
            lr_before_ = continued_.lr = optimizer_.lr();
        }
        const bool has_joined = copies_->version().generation > 0;
        const bool is_any_joined = group.all_reduce_value<std::uint8_t>(has_joined, ReduceOp::max) != 0;
        group.broadcast_object(continued_, point.root);
        if (is_any_joined && continued_.version.generation == 0)
            return false;  // a rank that would begin again
        sources_ = copies_->find_sources(group, point.root, continued_.version, point.is_reached, counts);
        return Copies::are_complete(sources_.states, counts) &&
               (continued_.has_values || Copies::are_complete(sources_.values, counts));
    }

    /// See ElasticAverages::continue_over().
    void continue_over(ProcessGroup& group, int root) {
        if constexpr (requires { optimizer_.set_lr(optimizer_.lr()); }) optimizer_.set_lr(continued_.lr);
        if (!continued_.has_values) has_stepped_ = true;  // as those of the root, until accept()
        slots_ = std::max(slots_, pieces().size());
        DataParallelSteps::continue_over(group, root);
        shards_ = std::make_unique<Shards>(reducer(), typename Shards::Options{});
        stepped_ = averaged_ = clipped_ = 0;
        const std::vector<int> keepers =
            detail::keepers_of(detail::all_gather_text(group, detail::host_identity()));
        keeper_ = keepers[static_cast<std::size_t>(group.rank())];
        kept_ = static_cast<int>(detail::find(keepers, group.rank()) - keepers.begin());
        if (!continued_.has_values)
            copies_->send_values(group, continued_.version, sources_.values,
                                 [&](const typename Copies::Source& source, std::span<const Scalar> values) {
                                     detail::copy(values, shards_
                                                              ->value({.parameter = source.parameter,
                                                                       .first = source.first,
                                                                       .count = values.size()})
                                                              .begin());
                                 });
        copies_->send_states(group, continued_.version, detail::ElasticGroup::generation(group).number,
                             sources_.states, pieces(), kept_pieces(), values_of_pieces());
        read_received();
    }

    /// Gives the optimizer the state of this rank's pieces.
    void read_received() {
        typename Copies::Copy& received = copies_->received();
        for (std::size_t slot = 0; slot < pieces().size(); ++slot)
            optimizer_.set_state(slot, received.state(received.entries()[slot]));
        for (std::size_t slot = pieces().size(); slot < slots_; ++slot) optimizer_.set_state(slot, {});
        slots_ = pieces().size();
        if constexpr (requires { optimizer_.set_group(std::span<const std::size_t>(), ParameterGroup()); }) {
            if (groups_.empty()) return;
            std::vector<std::size_t> all(pieces().size());
            std::iota(all.begin(), all.end(), std::size_t{0});
            optimizer_.set_group(all, ParameterGroup());
            for (const auto& [parameter, group] : groups_) optimizer_.set_group(slots_of(parameter), group);
        }
    }

    O optimizer_;
    bool has_value_memory_;
    std::unique_ptr<Shards> shards_;
    std::size_t stepped_ = 0;   // the number of the last step that step() has completed
    std::size_t averaged_ = 0;  // the number of the last step of which the pieces are averaged
    std::size_t clipped_ = 0;   // the number of the step whose averages step() multiplies by factor_, or 0
    double factor_ = 1;

    // ---- in an elastic job

    /// The state that the ranks continue from, or may continue from.
    struct Continued {
        detail::ShardVersion version;
        bool has_values = false;  // whether the root's values are those after its last step
        double lr = 0;
    };

    std::unique_ptr<Copies> copies_;  // null if the job is not elastic
    std::size_t slots_ = 0;           // which have a state, from before the last change or after it
    std::map<std::size_t, ParameterGroup> groups_;  // by parameter
    bool has_stepped_ = false;                      // since the last commit, possibly in part
    int keeper_ = 0;                                // the rank that keeps copies of this rank's pieces
    int kept_ = 0;                                  // the rank whose pieces this rank keeps copies of
    bool had_stepped_ = false;                      // before continue_over()
    Continued continued_;
    typename Copies::AllSources sources_;
    std::optional<double> lr_before_;  // before the ranks have changed, until all continue
};

namespace detail {

/// A ShardedOptimizer as a part of an ElasticState.
template <class O>
class ShardedAverages final : public ElasticAverages {
  public:
    explicit ShardedAverages(ShardedOptimizer<O>& sharded) : sharded_(sharded) {}
    std::size_t steps() override { return sharded_.reducer().steps(); }
    std::vector<ParameterRef> find_parameters() override { return sharded_.reducer().find_parameters(); }
    std::vector<std::byte> copy_buffers() override { return sharded_.reducer().copy_buffers(); }
    void restore_buffers(std::span<const std::byte> elements) override {
        sharded_.reducer().restore_buffers(elements);
    }
    void commit() override {
        if (!sharded_.copies_)
            throw ArgumentError("ElasticState: the ShardedOptimizer does not belong to its group");
        sharded_.commit();
    }
    bool can_continue(ProcessGroup& group, const Point& point) override {
        return sharded_.can_continue(group, point);
    }
    void continue_over(ProcessGroup& group, int root) override { sharded_.continue_over(group, root); }
    void roll_back() override { sharded_.has_stepped_ = sharded_.had_stepped_; }
    void accept() override {
        sharded_.copies_->accept();
        sharded_.has_stepped_ = false;
        sharded_.lr_before_.reset();
    }

  private:
    ShardedOptimizer<O>& sharded_;
};

}  // namespace detail

}  // namespace DPTK_NAMESPACE
