/// BatchNorm2d with oneDNN's batch normalization, over the batch of one rank, perhaps together with a ReLU.
#pragma once

#include <algorithm>
#include <variant>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/layer.hpp"
#include "dptk/nn/reference/batch_norm.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// Whether oneDNN computes a batch norm: it does not know of other ranks.
[[nodiscard]] inline bool is_local_norm(const Operation& operation) {
    const auto* const norm = std::get_if<BatchNorm2d>(&operation);
    return norm != nullptr && !norm->is_synchronized;
}

class BatchNormPlan final : public Plan {
  public:
    BatchNormPlan(Layer& layer, std::size_t batch, const Layout& input)
        : Plan(layer),
          count_(static_cast<double>(batch * info().output[1] * info().output[2])),
          in_training_(describe_mode(input, flags())),
          in_evaluation_(describe_mode(input, flags() | dnnl::normalization_flags::use_global_stats)) {
        output = input;
        use.keeps_inputs = true;
        const Layout channels = row_major_layout({dims_of(input)[1]});
        mean_ = add_workspace(channels, WorkspaceUse::kept);
        variance_ = add_workspace(channels, WorkspaceUse::kept);
        const Layout mask = in_training_.forward_described.workspace_desc();
        if (mask.get_size() != 0) mask_ = add_workspace(mask, WorkspaceUse::kept);
    }

  private:
    /// The primitives of a mode, which are made when they are needed.
    struct Primitives {
        dnnl::normalization_flags flags;
        dnnl::batch_normalization_forward::primitive_desc forward_described;
        Primitive forward = {};
        Primitive backward = {};
    };

    [[nodiscard]] Primitives describe_mode(const Layout& data, dnnl::normalization_flags mode) const {
        return {mode, describe_batch_norm(context().engine, data, eps(), mode)};
    }

    [[nodiscard]] const BatchNorm2d& norm() const { return std::get<BatchNorm2d>(info().operation); }

    [[nodiscard]] float eps() const { return static_cast<float>(norm().eps); }

    [[nodiscard]] dnnl::normalization_flags flags() const {
        using Flags = dnnl::normalization_flags;
        const Flags affine = Flags::use_scale | Flags::use_shift;
        return info().relu == FusedReLU::follows ? affine | Flags::fuse_norm_relu : affine;
    }

    std::vector<Layout> do_plan_backward(const Layout& output_gradient) override {
        output_gradient_ = add_converter(output_gradient, output, WorkspaceUse::backward);
        use.can_overwrite_gradient = !output_gradient_.copies();
        return {output};
    }

    [[nodiscard]] Primitives& primitives_of(const Pass& pass) {
        return pass.mode == Mode::train ? in_training_ : in_evaluation_;
    }

    void set_common(Primitive& primitive, bool reads_shift) {
        primitive.set(DNNL_ARG_MEAN, mean_)
            .set(DNNL_ARG_VARIANCE, variance_)
            .set(DNNL_ARG_SCALE, layer().weight().value_memory());
        if (reads_shift) primitive.set(DNNL_ARG_SHIFT, layer().bias().value_memory());
        if (mask_) primitive.set(DNNL_ARG_WORKSPACE, mask_);
    }

    void do_forward(const Arguments& arguments, const Pass& pass) override {
        Primitives& primitives = primitives_of(pass);
        if (!primitives.forward) {
            primitives.forward = Primitive(context(), primitives.forward_described);
            set_common(primitives.forward, true);
        }
        RunningStatistics<float>& statistics = *layer().statistics();
        auto* const mean = static_cast<float*>(mean_.get_data_handle());
        auto* const variance = static_cast<float*>(variance_.get_data_handle());
        const std::size_t channels = info().output[0];
        if (pass.mode == Mode::evaluate) {
            std::copy_n(statistics.mean.begin(), channels, mean);
            std::copy_n(statistics.variance.begin(), channels, variance);
        }
        primitives.forward.set(DNNL_ARG_SRC, arguments.inputs[0]).set(DNNL_ARG_DST, arguments.output).run();
        if (pass.mode == Mode::evaluate) return;
        reference::update_statistics(norm(), statistics, mean, variance, count_);
    }

    /// Also computes the gradient of the input, since oneDNN computes both together.
    void do_backward_parameters(const Arguments& arguments, const Pass& pass) override {
        Primitives& primitives = primitives_of(pass);
        if (!primitives.backward) {
            primitives.backward =
                Primitive(context(),
                          describe_batch_norm_backward(context().engine, output, eps(), primitives.flags,
                                                       primitives.forward_described),
                          {{DNNL_ARG_DIFF_SCALE, layer().weight().gradient_memory()},
                           {DNNL_ARG_DIFF_SHIFT, layer().bias().gradient_memory()}});
            set_common(primitives.backward, batch_norm_backward_reads_shift);
        }
        primitives.backward.set(DNNL_ARG_SRC, arguments.inputs[0])
            .set(DNNL_ARG_DIFF_DST, output_gradient_(arguments.output_gradient))
            .set(DNNL_ARG_DIFF_SRC, arguments.input_gradients[0])
            .run();
    }

    double count_;  // the elements of a channel
    Primitives in_training_;
    Primitives in_evaluation_;
    dnnl::memory mean_;
    dnnl::memory variance_;
    dnnl::memory mask_;  // which elements a fused ReLU has let pass
    Converter output_gradient_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu
