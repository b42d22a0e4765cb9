/// BatchNorm2d on channels-last images, over the batch of one rank or of all ranks, perhaps together with a
/// ReLU. Sums over several ranks go through host memory, and block.
#pragma once

#include <algorithm>
#include <cstddef>
#include <variant>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/copy.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/nn/cuda/kernels.hpp"
#include "dptk/nn/cuda/layer.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

class BatchNormPlan final : public Plan {
  public:
    BatchNormPlan(Layer& layer, const Layout& input)
        : Plan(layer, input), rows_(input.n * input.form.pixels()), channels_(input.form.padded) {
        using nn::detail::WorkspaceUse;
        use.keeps_inputs = use.can_overwrite_gradient = true;
        use.keeps_output = has_relu();
        const std::size_t scratch = kernels::channel_sums_scratch(rows_, channels_, context().type());
        kept_ = add_workspace(2 * channels_ * sizeof(float), WorkspaceUse::kept);
        variances_ = add_workspace(channels_ * sizeof(float), WorkspaceUse::forward);
        forward_scratch_ = add_workspace(scratch * sizeof(float), WorkspaceUse::forward);
        sums_ = add_workspace(2 * channels_ * sizeof(float), WorkspaceUse::backward);
        backward_scratch_ = add_workspace(2 * scratch * sizeof(float), WorkspaceUse::backward);
    }

    std::vector<Layout> plan_backward(const Layout& /*output_gradient*/) override { return {input()}; }

  private:
    [[nodiscard]] const BatchNorm2d& norm() const { return std::get<BatchNorm2d>(info().operation); }

    [[nodiscard]] bool is_shared(const Pass& pass) const {
        return pass.mode == Mode::train && norm().is_synchronized && pass.sum_over_ranks;
    }

    [[nodiscard]] static float* floats(const Memory& memory) { return static_cast<float*>(memory->data); }

    [[nodiscard]] float* means() const { return floats(kept_); }

    [[nodiscard]] float* factors() const { return floats(kept_) + channels_; }

    [[nodiscard]] kernels::BatchNormCall call(const Pass& pass) const {
        return {.type = context().type(),
                .rows = rows_,
                .channels = channels_,
                .means = pass.mode == Mode::train ? means() : layer().running().mean,
                .factors = factors(),
                .weight = layer().parameter(0).values().data(),
                .bias = layer().parameter(1).values().data(),
                .is_relu = has_relu()};
    }

    void do_forward(const Arguments& arguments, const Pass& pass) override {
        const void* const in = arguments.inputs[0]->data;
        const kernels::BatchNormCall call = this->call(pass);
        const kernels::RunningState& running = layer().running();
        const StreamRef stream = context().stream();
        const auto eps = static_cast<float>(norm().eps);
        if (pass.mode == Mode::train) {
            count_ = static_cast<double>(rows_);
            sum(in, {.type = call.type, .rows = rows_, .channels = channels_}, means(), &count_, pass);
            sum(in, call, floats(variances_), nullptr, pass);
            kernels::batch_norm_factors(
                means(), floats(variances_), eps, factors(), running, static_cast<float>(norm().momentum),
                static_cast<float>(count_ / std::max(count_ - 1, 1.0)), channels_, stream);
        } else {
            kernels::batch_norm_factors(running.mean, running.variance, eps, factors(), {}, 0, 1, channels_,
                                        stream);
        }
        kernels::batch_norm(in, arguments.output->data, call, stream);
    }

    /// Computes the mean of what batch_norm_sums() sums, over all ranks if they share the batch. Sums `count`
    /// with it, if it is not null.
    void sum(const void* in, const kernels::BatchNormCall& call, float* sums, double* count,
             const Pass& pass) {
        const bool is_shared = this->is_shared(pass);
        kernels::batch_norm_sums(in, call, is_shared ? 1 : static_cast<float>(1 / count_), sums,
                                 floats(forward_scratch_), context().stream());
        if (!is_shared) return;
        std::vector<double> all = fetch(sums, info().output[0]);
        if (count != nullptr) all.push_back(*count);
        pass.sum_over_ranks(all);
        if (count != nullptr) {
            *count = all.back();
            all.pop_back();
        }
        for (double& value : all) value /= count_;
        store(all, sums);
    }

    void do_backward_parameters(const Arguments& arguments, const Pass& pass) override {
        float* const sums = floats(sums_);
        kernels::batch_norm_gradient_sums(arguments.inputs[0]->data, arguments.output->data,
                                          arguments.output_gradient->data, call(pass), sums,
                                          floats(backward_scratch_), context().stream());
        for (const std::size_t i : {0U, 1U})
            dptk::cuda::detail::copy_bytes(layer().parameter(1 - i).gradient().data(), sums + i * channels_,
                                           channels_ * sizeof(float), context().stream());
    }

    void do_backward_inputs(const Arguments& arguments, const Pass& pass) override {
        if (is_shared(pass)) share_gradient_sums(pass);
        // In evaluation, mean and variance are constants.
        const double rest = pass.mode == Mode::train ? 1 / count_ : 0;
        kernels::batch_norm_backward(arguments.inputs[0]->data, arguments.output->data,
                                     arguments.output_gradient->data, arguments.input_gradients[0]->data,
                                     call(pass), floats(sums_), static_cast<float>(rest), context().stream());
    }

    /// As the reference's backward_inputs() does.
    void share_gradient_sums(const Pass& pass) {
        const std::size_t channels = info().output[0];
        const double weight = pass.weighs_by_samples ? static_cast<double>(input().n) : 1;
        std::vector<double> all = fetch(floats(sums_), channels);
        const std::vector<double> products = fetch(floats(sums_) + channels_, channels);
        all.insert(all.end(), products.begin(), products.end());
        for (double& value : all) value *= weight;
        pass.sum_over_ranks(all);
        for (double& value : all) value /= weight;
        store(std::span(all).first(channels), floats(sums_));
        store(std::span(all).last(channels), floats(sums_) + channels_);
    }

    [[nodiscard]] std::vector<double> fetch(const float* from, std::size_t count) {
        context().refuse_capture("the sums over all ranks go through host memory");
        std::vector<float> values(count);
        dptk::cuda::detail::copy_bytes(values.data(), from, count * sizeof(float), context().stream());
        dptk::cuda::synchronize(context().stream());
        return {values.begin(), values.end()};
    }

    void store(std::span<const double> values, float* to) {
        const std::vector<float> narrow(values.begin(), values.end());
        dptk::cuda::detail::copy_bytes(to, narrow.data(), narrow.size() * sizeof(float), context().stream());
        dptk::cuda::synchronize(context().stream());
    }

    std::size_t rows_;
    std::size_t channels_;
    double count_ = 0;  // the elements of a channel, over all ranks
    Memory kept_;       // means and factors
    Memory variances_;
    Memory forward_scratch_;
    Memory sums_;
    Memory backward_scratch_;
};

}  // namespace DPTK_NAMESPACE::nn::cuda
