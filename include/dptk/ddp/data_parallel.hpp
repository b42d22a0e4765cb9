/// Single-process data parallelism: DataParallel trains several replicas of a model, each on a thread of
/// its own, like PyTorch's nn.DataParallel. In each step, the main replica broadcasts its values to the
/// other replicas, and the gradients of all replicas are summed in the main replica. Prefer
/// DistributedDataParallel if the program can run as several processes: it computes the same results with
/// less overhead (docs/ddp.md compares them).
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

#include "dptk/comm/engine/work_queue.hpp"
#include "dptk/comm/thread.hpp"
#include "dptk/core/config.hpp"
#include "dptk/ddp/detail/model_parameters.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// One replica and the thread that works on it. All member functions run on that thread, except start() and
/// parameters(). If a collective operation fails on one replica only, the job is aborted, so that the other
/// replicas do not wait for this replica.
class ModelReplica {
  public:
    explicit ModelReplica(ParameterSource source);

    /// Runs `action` on the replica's thread. Throws BackendError if no thread can be created.
    [[nodiscard]] Work start(std::function<void()> action);

    /// Connects to the other replicas, and compares the parameters with theirs. Collective.
    void join(const ThreadJob& job, int number);

    void leave() { group_.reset(); }

    /// Throws ArgumentError if the parameters' number, or the size, type or device of a parameter, has
    /// changed.
    void read_addresses() { parameters_.read_addresses(); }

    /// Receives the main replica's values. Collective.
    void receive_values();

    /// Sets the main replica's gradients to the average over `all` samples, of which this replica has
    /// `samples`. In host memory this needs no weights if all replicas have equally many, as in
    /// DistributedDataParallel, whose bits it has. Collective.
    void reduce(std::size_t samples, std::size_t all);

    /// Returns the parameters. May be called between steps, from any thread.
    [[nodiscard]] const std::vector<ParameterRef>& parameters() const noexcept { return parameters_.refs(); }

  private:
    void compare();

    void reduce_gradients(std::size_t samples, std::size_t all);

    /// Blocks until the device has completed all its work, since the program may use any of its streams.
    void wait_for_device() const;

    [[nodiscard]] bool is_on_device() const { return device().type != DeviceType::cpu; }
    [[nodiscard]] Device device() const { return parameters_.size() == 0 ? Device{} : parameters_[0].device; }

    ModelParameters parameters_;
    std::optional<ProcessGroup> group_;
    WorkQueue thread_;
};

}  // namespace detail

/// Trains equal replicas of a model in one process, each in host memory or on one device. The program may use
/// any stream of a device, since each step waits for all work of the device. The replicas must outlive this
/// object. Each replica's work runs on a thread of its own. The object must be used by one thread at a time.
class DataParallel {
  public:
    /// Connects the replicas; the first one is the main replica. Throws ArgumentError if there is no
    /// replica, or if the parameters of a replica are unusable or on several devices. Throws MismatchError
    /// if the parameters of two replicas differ, or if two replicas differ in which parameters share a
    /// gradient.
    explicit DataParallel(std::vector<ParameterSource> replicas, ThreadOptions options = {});

    /// Accepts a range of models. Each model has a for_each_parameter, or is a container of pairs of value
    /// and gradient.
    template <std::ranges::forward_range Models>
        requires(!std::same_as<std::ranges::range_value_t<Models>, ParameterSource>)
    explicit DataParallel(Models& models, ThreadOptions options = {})
        : DataParallel(sources_of(models), options) {}

    ~DataParallel();
    DataParallel(DataParallel&&) = default;
    DataParallel& operator=(DataParallel&&) = delete;
    DataParallel(const DataParallel&) = delete;
    DataParallel& operator=(const DataParallel&) = delete;

    /// Runs one step over a batch of samples, which are given by their indices. All replicas receive the
    /// main replica's values. The batch is split into one part for each replica, and the sizes of the parts
    /// differ by at most one. forward_backward(replica, part) is called with the index of a replica, on
    /// this replica's thread and device, and computes this replica's gradients, as means over the samples
    /// of the part. Afterwards, the main replica's gradients are the means over the batch; the other
    /// replicas' gradients are unspecified. forward_backward is not called for an empty part. Returns the
    /// results of the calls, in the order of the parts. Blocks.
    ///
    /// Throws ArgumentError if the batch is empty, or if the parameters' number, or the size, type or
    /// device of a parameter, has changed. If forward_backward throws, the exception of the first such
    /// replica is rethrown after all replicas have finished; the next step may then begin.
    template <class ForwardBackward>
        requires std::invocable<ForwardBackward&, std::size_t, std::span<const std::size_t>>
    auto step(std::span<const std::size_t> batch, ForwardBackward&& forward_backward) {
        using Result = std::invoke_result_t<ForwardBackward&, std::size_t, std::span<const std::size_t>>;
        if (batch.empty())
            throw ArgumentError("DataParallel::step: expected at least one sample, got an empty batch");
        if constexpr (std::is_void_v<Result>) {
            run_step(batch, forward_backward);
        } else {
            std::vector<std::optional<Result>> found(replicas_.size());
            run_step(batch, [&](std::size_t replica, std::span<const std::size_t> part) {
                found[replica].emplace(forward_backward(replica, part));
            });
            std::vector<Result> results;
            for (std::optional<Result>& result : found) {
                if (result) results.push_back(std::move(*result));
            }
            return results;
        }
    }

    /// Returns the main replica's parameters in registration order, with the addresses of the last step.
    [[nodiscard]] const std::vector<ParameterRef>& parameters() const noexcept;

    /// Returns the number of replicas.
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
    void run_step(std::span<const std::size_t> batch, ForwardBackward&& forward_backward) {
        on_all([](detail::ModelReplica& replica, std::size_t) { replica.read_addresses(); });
        on_all([&](detail::ModelReplica& replica, std::size_t number) {
            replica.receive_values();
            const std::span<const std::size_t> part = part_of(batch, number);
            if (!part.empty()) forward_backward(number, part);
        });
        on_all([&](detail::ModelReplica& replica, std::size_t number) {
            replica.reduce(part_of(batch, number).size(), batch.size());
        });
    }

    [[nodiscard]] std::span<const std::size_t> part_of(std::span<const std::size_t> batch,
                                                       std::size_t replica) const;

    /// Calls action(replica, index) on each replica's thread, and waits for all. Then rethrows the first
    /// exception; PeerLostError, which is a consequence of another failure, is rethrown only if there is no
    /// other exception.
    template <class Action>
    void on_all(Action&& action) {
        std::vector<Work> works;
        std::exception_ptr cause;
        std::exception_ptr consequence;
        try {
            for (std::size_t number = 0; number < replicas_.size(); ++number)
                works.push_back(replicas_[number].start([&, number] { action(replicas_[number], number); }));
        } catch (const std::exception& error) {  // the started replicas must not wait for the others
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

    /// Disconnects each replica on its own thread, since leaving a group waits for the other replicas.
    void leave() noexcept;

    detail::ThreadJob job_;
    std::deque<detail::ModelReplica> replicas_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/data_parallel.ipp"
#endif
