/// Max pools in images whose channels lie in blocks of 8 or 16, as oneDNN's convolutions leave them. oneDNN's
/// own pools take several times as long.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/openmp.hpp"
#include "dptk/nn/cpu/layer.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// The windows of a max pool in planes, each of which has one block of channels of one image.
struct BlockedMaxPool {
    std::size_t planes = 0;
    std::size_t block = 0;  ///< Channels of a plane: 8 or 16.
    Shape input, output;    ///< Channels, height, width.
    MaxPool2d pool;

    /// Returns the windows of a pool on images of this layout; nullopt if their channels do not lie in
    /// blocks, or a position in a window does not fit into a byte.
    [[nodiscard]] static std::optional<BlockedMaxPool> find(const OperationInfo& info, const Layout& input) {
        const auto* const pool = std::get_if<MaxPool2d>(&info.operation);
        if (pool == nullptr || pool->kernel_size.height * pool->kernel_size.width > 256) return std::nullopt;
        const Dims dims = dims_of(input);
        using Tag = dnnl::memory::format_tag;
        for (const auto& [block, tag] : {std::pair{8U, Tag::nChw8c}, {16U, Tag::nChw16c}}) {
            if (input != Layout(dims, ElementType::f32, tag)) continue;
            const std::size_t blocks = (info.inputs[0][0] + block - 1) / block;
            return BlockedMaxPool{static_cast<std::size_t>(dims[0]) * blocks, block, info.inputs[0],
                                  info.output, *pool};
        }
        return std::nullopt;
    }

    [[nodiscard]] std::size_t outputs() const noexcept { return planes * outputs_of_plane(); }

    /// Writes the largest element of each window, and its position in the window, row by row. Of equal
    /// elements, this is the first one; of NaNs, the last one.
    void forward(const float* in, float* out, std::uint8_t* positions) const {
        dptk::detail::OpenMp::runtime().for_each(planes, [&](std::size_t plane) {
            const float* const own_in = in + plane * inputs_of_plane();
            float* const own_out = out + plane * outputs_of_plane();
            std::uint8_t* const own_positions = positions + plane * outputs_of_plane();
            block == 8 ? forward_plane<2>(own_in, own_out, own_positions)
                       : forward_plane<4>(own_in, own_out, own_positions);
        });
    }

    /// Writes the gradient of the input.
    void backward(const float* out_gradient, const std::uint8_t* positions, float* in_gradient) const {
        dptk::detail::OpenMp::runtime().for_each(planes, [&](std::size_t plane) {
            const float* const own_out = out_gradient + plane * outputs_of_plane();
            const std::uint8_t* const own_positions = positions + plane * outputs_of_plane();
            float* const own_in = in_gradient + plane * inputs_of_plane();
            std::fill_n(own_in, inputs_of_plane(), 0.0F);
            block == 8 ? add_gradients<2>(own_out, own_positions, own_in)
                       : add_gradients<4>(own_out, own_positions, own_in);
        });
    }

  private:
    // Four lanes: a register of every x86-64 and Arm processor.
    typedef float Floats __attribute__((vector_size(16)));
    typedef std::int32_t Ints __attribute__((vector_size(16)));
    typedef std::uint8_t Bytes __attribute__((vector_size(4)));
    static constexpr std::size_t lanes = 4;

    template <class Vector>
    [[nodiscard]] static Vector load(const void* from) noexcept {
        Vector vector;
        std::memcpy(&vector, from, sizeof vector);
        return vector;
    }

    template <class Vector>
    static void store(void* to, const Vector& vector) noexcept {
        std::memcpy(to, &vector, sizeof vector);
    }

    [[nodiscard]] std::size_t inputs_of_plane() const noexcept { return input[1] * input[2] * block; }
    [[nodiscard]] std::size_t outputs_of_plane() const noexcept { return output[1] * output[2] * block; }

    /// Calls visit(position in the window, pixel) for the pixels of the window of output (y, x) that are not
    /// in the padding.
    template <class Visit>
    void for_each_pixel(std::size_t y, std::size_t x, Visit&& visit) const {
        for (std::size_t ky = 0; ky < pool.kernel_size.height; ++ky) {
            const std::size_t iy = y * pool.stride.height + ky - pool.padding.height;
            if (iy >= input[1]) continue;
            for (std::size_t kx = 0; kx < pool.kernel_size.width; ++kx) {
                const std::size_t ix = x * pool.stride.width + kx - pool.padding.width;
                if (ix < input[2]) visit(ky * pool.kernel_size.width + kx, iy * input[2] + ix);
            }
        }
    }

    /// Calls window(y, x, first), where `first` is the index of the first channel of output (y, x).
    template <class Window>
    void for_each_window(Window&& window) const {
        std::size_t first = 0;
        for (std::size_t y = 0; y < output[1]; ++y)
            for (std::size_t x = 0; x < output[2]; ++x, first += block) window(y, x, first);
    }

    template <std::size_t vectors>
    void forward_plane(const float* in, float* out, std::uint8_t* positions) const {
        for_each_window([&](std::size_t y, std::size_t x, std::size_t first) {
            Floats best[vectors];
            Ints best_position[vectors];
            for (std::size_t v = 0; v < vectors; ++v) {
                best[v] = Floats{} - std::numeric_limits<float>::infinity();
                best_position[v] = Ints{} - 1;
            }
            for_each_pixel(y, x, [&](std::size_t position, std::size_t pixel) {
                const Ints here = Ints{} + static_cast<std::int32_t>(position);
                for (std::size_t v = 0; v < vectors; ++v) {
                    const auto value = load<Floats>(in + (pixel * vectors + v) * lanes);
                    const Ints is_better = (value > best[v]) | (value != value) | (best_position[v] < 0);
                    best[v] = is_better ? value : best[v];
                    best_position[v] = is_better ? here : best_position[v];
                }
            });
            for (std::size_t v = 0; v < vectors; ++v) {
                store(out + first + v * lanes, best[v]);
                store(positions + first + v * lanes, __builtin_convertvector(best_position[v], Bytes));
            }
        });
    }

    template <std::size_t vectors>
    void add_gradients(const float* out_gradient, const std::uint8_t* positions, float* in_gradient) const {
        for_each_window([&](std::size_t y, std::size_t x, std::size_t first) {
            Floats gradient[vectors];
            Ints position_of_best[vectors];
            for (std::size_t v = 0; v < vectors; ++v) {
                gradient[v] = load<Floats>(out_gradient + first + v * lanes);
                position_of_best[v] =
                    __builtin_convertvector(load<Bytes>(positions + first + v * lanes), Ints);
            }
            for_each_pixel(y, x, [&](std::size_t position, std::size_t pixel) {
                const Ints here = Ints{} + static_cast<std::int32_t>(position);
                for (std::size_t v = 0; v < vectors; ++v) {
                    float* const sum = in_gradient + (pixel * vectors + v) * lanes;
                    store(sum, load<Floats>(sum) + (position_of_best[v] == here ? gradient[v] : Floats{}));
                }
            });
        });
    }
};

class MaxPoolPlan final : public Plan {
  public:
    /// Returns whether this plan is faster than a PoolPlan for the layer's pool on images of this layout.
    [[nodiscard]] static bool is_faster(const Layer& layer, const Layout& input) {
        return dptk::detail::OpenMp::runtime().threads() > 0 &&
               BlockedMaxPool::find(layer.info(), input).has_value();
    }

    MaxPoolPlan(Layer& layer, const Layout& input)
        : Plan(layer), windows_(*BlockedMaxPool::find(layer.info(), input)), input_(input) {
        using Tag = dnnl::memory::format_tag;
        output = Layout(dims_of_batch(static_cast<std::size_t>(dims_of(input)[0]), info().output),
                        ElementType::f32, windows_.block == 8 ? Tag::nChw8c : Tag::nChw16c);
        const auto bytes = static_cast<dnnl::memory::dim>(windows_.outputs());
        positions_ = add_workspace({{bytes}, ElementType::u8, Tag::a}, WorkspaceUse::kept);
    }

  private:
    std::vector<Layout> do_plan_backward(const Layout& output_gradient) override {
        output_gradient_ = add_converter(output_gradient, output, WorkspaceUse::backward);
        return {input_};
    }

    void do_forward(const Arguments& arguments, const Pass& /*pass*/) override {
        windows_.forward(static_cast<const float*>(arguments.inputs[0].get_data_handle()),
                         static_cast<float*>(arguments.output.get_data_handle()), positions());
    }

    void do_backward_inputs(const Arguments& arguments, const Pass& /*pass*/) override {
        windows_.backward(
            static_cast<const float*>(output_gradient_(arguments.output_gradient).get_data_handle()),
            positions(), static_cast<float*>(arguments.input_gradients[0].get_data_handle()));
    }

    [[nodiscard]] std::uint8_t* positions() const {
        return static_cast<std::uint8_t*>(positions_.get_data_handle());
    }

    BlockedMaxPool windows_;
    Layout input_;
    dnnl::memory positions_;
    Converter output_gradient_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu
