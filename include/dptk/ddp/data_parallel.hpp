/// DataParallel trains replicas of a model side by side in one process, with a thread for each: PyTorch's
/// nn.DataParallel, for a program that cannot be several processes. One main replica is stepped; in each step
/// its values go to all others, and all gradients come to it. DistributedDataParallel gives the same results
/// for less: docs/ddp.md says what the difference costs.
#pragma once

#include <concepts>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <optional>
#include <ranges>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/comm/detail/work_queue.hpp"
#include "dptk/comm/thread.hpp"
#include "dptk/core/config.hpp"
#include "dptk/ddp/detail/model_parameters.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// One replica, and the thread that works with it. All but start() runs on that. What is collective here ends
/// the job where it fails on one replica alone, so that the others wait for nobody.
class ModelReplica {
  public:
    explicit ModelReplica(ParameterSource source);

    /// Throws BackendError where there can be no further thread.
    [[nodiscard]] Work start(std::function<void()> action);

    /// Finds the other replicas, and compares itself with them. Collective.
    void join(const ThreadJob& job, int number);

    void leave() { group_.reset(); }

    /// Throws ArgumentError where its parameters have changed.
    void read_addresses() { parameters_.read_addresses(); }

    /// Takes the main replica's values. Collective.
    void take_values();

    /// The main replica's gradients = the sum of all replicas' * weight. Collective.
    void reduce(double weight);

    /// Between steps, from any thread.
    [[nodiscard]] const std::vector<ParameterRef>& parameters() const noexcept { return parameters_.refs(); }

  private:
    void compare();

    /// Those of tied parameters, but for the first of each.
    [[nodiscard]] std::vector<std::size_t> repeated_gradients() const;

    void reduce_gradients(double weight);

    [[nodiscard]] bool is_on_device() const { return device().type != DeviceType::cpu; }
    [[nodiscard]] Device device() const { return parameters_.size() == 0 ? Device{} : parameters_[0].device; }

    ModelParameters parameters_;
    std::optional<ProcessGroup> group_;
    WorkQueue thread_;
};

}  // namespace detail

/// The replicas are equal models, each in host memory or on one device; they outlive this object. One thread
/// at a time. Each replica's work is done by a thread of its own.
class DataParallel {
  public:
    /// The first is the main one. Throws ArgumentError where there is none, or the parameters of one are
    /// unusable or on several devices; MismatchError where two differ, also in which parameters are tied to
    /// one gradient. Replicas on devices connect here.
    explicit DataParallel(std::vector<ParameterSource> replicas, ThreadOptions options = {});

    /// Of a range of models, each with a for_each_parameter or a container of pairs of value and gradient.
    template <std::ranges::forward_range Models>
        requires(!std::same_as<std::ranges::range_value_t<Models>, ParameterSource>)
    explicit DataParallel(Models& models, ThreadOptions options = {})
        : DataParallel(sources_of(models), options) {}

    ~DataParallel();
    DataParallel(DataParallel&&) = default;
    DataParallel& operator=(DataParallel&&) = delete;
    DataParallel(const DataParallel&) = delete;
    DataParallel& operator=(const DataParallel&) = delete;

    /// One step over a batch of samples, given by their indices: all replicas take the main one's values; the
    /// batch is cut into parts whose sizes differ by at most one; forward_backward(replica, part) computes
    /// the mean gradients over a part in the replica of that number, on its thread and device; and the main
    /// replica's gradients are then the mean over the batch. Replicas without samples are not called; the
    /// others' gradients are unspecified. Returns what the calls return, in the order of the parts. Blocks.
    ///
    /// Throws ArgumentError for an empty batch, and for parameters that have changed. What forward_backward
    /// throws is thrown here, that of the first replica, when all have ended; the next step may begin.
    template <class ForwardBackward>
        requires std::invocable<ForwardBackward&, std::size_t, std::span<const std::size_t>>
    auto step(std::span<const std::size_t> batch, ForwardBackward&& forward_backward) {
        using Result = std::invoke_result_t<ForwardBackward&, std::size_t, std::span<const std::size_t>>;
        if (batch.empty()) throw ArgumentError("DataParallel: a step without samples");
        if constexpr (std::is_void_v<Result>) {
            carry_out(batch, forward_backward);
        } else {
            std::vector<std::optional<Result>> found(replicas_.size());
            carry_out(batch, [&](std::size_t replica, std::span<const std::size_t> part) {
                found[replica].emplace(forward_backward(replica, part));
            });
            std::vector<Result> results;
            for (std::optional<Result>& result : found) {
                if (result) results.push_back(std::move(*result));
            }
            return results;
        }
    }

    /// The main replica's parameters in registration order, with the addresses of the last step.
    [[nodiscard]] const std::vector<ParameterRef>& parameters() const noexcept;

    /// The number of replicas.
    [[nodiscard]] std::size_t size() const noexcept { return replicas_.size(); }

  private:
    [[nodiscard]] static int number_of(const std::vector<ParameterSource>& replicas);

    template <class Models>
    [[nodiscard]] static std::vector<ParameterSource> sources_of(Models& models) {
        std::vector<ParameterSource> sources;
        for (auto& model : models) sources.emplace_back(model);
        return sources;
    }

    template <class ForwardBackward>
    void carry_out(std::span<const std::size_t> batch, ForwardBackward&& forward_backward) {
        on_all([](detail::ModelReplica& replica, std::size_t) { replica.read_addresses(); });
        on_all([&](detail::ModelReplica& replica, std::size_t number) {
            replica.take_values();
            const std::span<const std::size_t> part = part_of(batch, number);
            if (!part.empty()) forward_backward(number, part);
        });
        on_all([&](detail::ModelReplica& replica, std::size_t number) {
            replica.reduce(static_cast<double>(part_of(batch, number).size()) /
                           static_cast<double>(batch.size()));
        });
    }

    [[nodiscard]] std::span<const std::size_t> part_of(std::span<const std::size_t> batch,
                                                       std::size_t replica) const;

    /// action(replica, its number) on each replica's thread. When all have ended, throws what the first has
    /// thrown, a cause before what comes of it.
    template <class Action>
    void on_all(Action&& action) {
        std::vector<Work> works;
        std::exception_ptr cause;
        std::exception_ptr consequence;
        try {
            for (std::size_t number = 0; number < replicas_.size(); ++number)
                works.push_back(replicas_[number].start([&, number] { action(replicas_[number], number); }));
        } catch (const std::exception& error) {  // those that run must not wait for the others
            cause = std::current_exception();
            job_.job_state->fail(error.what());
        }
        for (Work& work : works) {
            try {
                work.wait();
            } catch (const PeerLostError&) {
                if (!consequence) consequence = std::current_exception();
            } catch (...) {
                if (!cause) cause = std::current_exception();
            }
        }
        if (cause) std::rethrow_exception(cause);
        if (consequence) std::rethrow_exception(consequence);
    }

    /// Each on its own thread, since their groups wait for each other.
    void leave() noexcept;

    detail::ThreadJob job_;
    std::deque<detail::ModelReplica> replicas_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/data_parallel.ipp"
#endif
