/// The gradients of micro-batches, each weighted by its samples, until the step that sends them.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/comm/local_reduce.hpp"
#include "dptk/ddp/parameter_ref.hpp"

namespace dptk::detail {

/// Sums are kept in f32, and in f64 for f64.
class GradientAccumulator {
  public:
    /// Adds the gradients of `samples` samples, each the mean over them, and sets them to zero. Those of no
    /// samples do not count, whatever they hold. `takes(i)`: whether parameter i takes part.
    template <class Takes>
    void add(const std::vector<ParameterRef>& parameters, std::size_t samples, Takes&& takes) {
        if (sums_.empty()) sums_.resize(parameters.size());
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            const ParameterRef& parameter = parameters[i];
            if (parameter.count == 0 || !takes(i)) continue;
            if (samples > 0) add_to(i, parameter, static_cast<double>(samples));
            std::memset(parameter.gradient, 0, parameter.count * dtype_size(parameter.dtype));
        }
    }

    /// to = sum * sum_factor + gradient * factor, rounded once. A factor of 0 makes zeros, whatever the
    /// gradient holds.
    void blend(const Buffer& to, std::size_t i, double sum_factor, const void* gradient,
               double factor) const {
        visit_dtype(to.dtype, [&](auto zero) {
            using T = decltype(zero);
            if constexpr (Real<T>) {
                using Wide = typename Arithmetic<T>::type;
                const void* sums = sums_[i] ? sums_[i]->buffer().data : nullptr;
                for (std::size_t e = 0; e < to.count; ++e) {
                    Wide value{0};
                    if (sums != nullptr) value = load<Wide>(sums, e) * static_cast<Wide>(sum_factor);
                    if (factor != 0)
                        value += static_cast<Wide>(load<T>(gradient, e)) * static_cast<Wide>(factor);
                    store<T>(to.data, e, static_cast<T>(value));
                }
            }
        });
    }

    /// Forgets the sums; the memory is kept for the next ones.
    void clear() {
        for (const auto& sum : sums_) {
            if (sum) std::memset(sum->buffer().data, 0, sum->buffer().bytes());
        }
    }

  private:
    void add_to(std::size_t i, const ParameterRef& parameter, double samples) {
        if (!sums_[i]) {
            const Buffer like{nullptr, parameter.count, accumulation_dtype(parameter.dtype), {}};
            sums_[i] = std::make_unique<algorithms::Scratch>(like);
        }
        visit_dtype(parameter.dtype, [&](auto zero) {
            using T = decltype(zero);
            if constexpr (Real<T>) {
                using Wide = typename Arithmetic<T>::type;
                void* sums = sums_[i]->buffer().data;
                for (std::size_t e = 0; e < parameter.count; ++e) {
                    const Wide gradient = static_cast<Wide>(load<T>(parameter.gradient, e));
                    store<Wide>(sums, e, load<Wide>(sums, e) + gradient * static_cast<Wide>(samples));
                }
            }
        });
    }

    std::vector<std::unique_ptr<algorithms::Scratch>> sums_;
};

}  // namespace dptk::detail
