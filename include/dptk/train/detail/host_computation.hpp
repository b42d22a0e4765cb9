/// HostComputation, what the versions of TrainerComputation for models in host memory have in common: sums,
/// steps and the optimizer.
#pragma once

#include <concepts>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/ddp/distributed_data_parallel.hpp"
#include "dptk/nn/loss.hpp"
#include "dptk/train/detail/optimizer_choice.hpp"
#include "dptk/train/trainer_options.hpp"

namespace DPTK_NAMESPACE::detail {

template <class S>
class HostComputation {
  public:
    using Scalar = S;
    static constexpr bool is_on_host = true;

    /// Sums over this rank's samples.
    struct Totals {
        double loss = 0;
        double correct = 0;  // NaN if the model has no accuracy
        double samples = 0;

        void reset() { *this = {}; }
        [[nodiscard]] const Totals& fetch() const noexcept { return *this; }

        /// Adds a batch.
        void add(const nn::LossResult& result, std::size_t batch_size) {
            loss += result.loss * static_cast<double>(batch_size);
            correct += result.correct ? static_cast<double>(*result.correct)
                                      : std::numeric_limits<double>::quiet_NaN();
            samples += static_cast<double>(batch_size);
        }
    };

    explicit HostComputation(const TrainerOptions& options) : optimizer_(options) {}

    [[nodiscard]] Totals make_totals() const { return {}; }

    /// Called at the start of an epoch and after Callback::train_summary(). Only the version for GPUs has a
    /// graph. Collective.
    void drop_stale_graph(ProcessGroup& /*group*/) {}

    /// Runs a step after a batch is loaded, by calling `step`. The work of `step` may depend only on the
    /// number of samples, since the version for GPUs captures it in a CUDA graph. `all_are_full` says whether
    /// all ranks have a full batch.
    template <std::invocable Step>
    void run(bool /*all_are_full*/, Step&& step) {
        std::forward<Step>(step)();
    }

    [[nodiscard]] auto& optimizer() noexcept { return optimizer_; }

    [[nodiscard]] const auto& optimizer() const noexcept { return optimizer_; }

    /// Returns a view of elements in the layout of a parameter.
    [[nodiscard]] std::span<Scalar> elements(const ParameterRef& parameter, const void* data) const {
        return {static_cast<Scalar*>(const_cast<void*>(data)), parameter.count};
    }

    /// Returns an optimizer's array where the model's elements are.
    [[nodiscard]] const std::vector<Scalar>& upload(const std::vector<Scalar>& array) const { return array; }

    [[nodiscard]] std::vector<Scalar> download(const std::vector<Scalar>& array) const { return array; }

    /// Does nothing: on the host each step throws its own errors.
    void check(DistributedDataParallel& /*ddp*/) {}

  private:
    HostOptimizer<Scalar> optimizer_;
};

}  // namespace DPTK_NAMESPACE::detail
