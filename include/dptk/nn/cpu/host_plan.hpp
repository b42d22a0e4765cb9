/// Operations that oneDNN lacks, computed by the functions of nn/reference in row-major memory. Inputs and
/// gradients are converted where they have other layouts.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/layer.hpp"
#include "dptk/nn/reference/host_operation.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

class HostPlan final : public Plan {
  public:
    HostPlan(Layer& layer, std::size_t batch, std::span<const Layout> inputs)
        : Plan(layer), host_(info(), layer.statistics(), batch, layer.parameters()) {
        use = reference::memory_use(info().operation);
        for (const Layout& input : inputs) {
            const Layout wanted = row_major_layout(dims_of(input));
            inputs_.push_back(
                add_converter(input, wanted, use.keeps_inputs ? WorkspaceUse::kept : WorkspaceUse::forward));
            if (inputs_.back().copies()) use.overwritable_inputs = 0;
            gradient_layouts_.push_back(wanted);
        }
        output = row_major_layout(dims_of_batch(batch, info().output));
    }

  private:
    std::vector<Layout> do_plan_backward(const Layout& output_gradient) override {
        output_gradient_ = add_converter(output_gradient, row_major_layout(dims_of(output_gradient)),
                                         WorkspaceUse::backward);
        return gradient_layouts_;
    }

    [[nodiscard]] static float* floats(const dnnl::memory& memory) {
        return static_cast<float*>(memory.get_data_handle());
    }

    void do_forward(const Arguments& arguments, const Pass& pass) override {
        for (std::size_t k = 0; k < inputs_.size(); ++k)
            host_.inputs[k] = floats(inputs_[k](arguments.inputs[k]));
        host_.output = floats(arguments.output);
        host_.forward(pass);
    }

    void do_backward_parameters(const Arguments& arguments, const Pass& pass) override {
        host_.output_gradient = floats(output_gradient_(arguments.output_gradient));
        host_.backward_parameters(pass);
    }

    void do_backward_inputs(const Arguments& arguments, const Pass& pass) override {
        for (std::size_t k = 0; k < inputs_.size(); ++k)
            host_.input_gradients[k] = floats(arguments.input_gradients[k]);
        host_.backward_inputs(pass);
    }

    reference::HostOperation<float> host_;
    std::vector<Converter> inputs_;
    std::vector<Layout> gradient_layouts_;
    Converter output_gradient_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu
