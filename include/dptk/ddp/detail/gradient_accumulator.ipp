#pragma once

#include "dptk/ddp/detail/gradient_accumulator.hpp"

#include "dptk/comm/algorithms/local_reduce.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void GradientAccumulator::blend(const Buffer& to, std::size_t i, double sum_factor,
                                            const Buffer& gradient, double factor) const {
    visit_dtype(gradient.dtype, [&](auto zero) {
        using T = decltype(zero);
        if constexpr (Real<T>) {
            using Wide = typename Arithmetic<T>::type;
            const void* sums = sums_[i] ? sums_[i]->buffer().data : nullptr;
            const bool is_wide = to.dtype != gradient.dtype;
            for (std::size_t e = 0; e < to.count; ++e) {
                Wide value{0};
                if (sums != nullptr) value = load<Wide>(sums, e) * static_cast<Wide>(sum_factor);
                if (factor != 0)
                    value += static_cast<Wide>(load<T>(gradient.data, e)) * static_cast<Wide>(factor);
                if (is_wide) {
                    store<Wide>(to.data, e, value);
                } else {
                    store<T>(to.data, e, static_cast<T>(value));
                }
            }
        }
    });
}

DPTK_INLINE void GradientAccumulator::clear() {
    for (const auto& sum : sums_) {
        if (sum) std::memset(sum->buffer().data, 0, sum->buffer().bytes());
    }
}

DPTK_INLINE void GradientAccumulator::add_to(std::size_t i, const ParameterRef& parameter, double weight) {
    if (!sums_[i]) {
        const DType dtype = accumulation_dtype(parameter.gradient_buffer().dtype);
        const Buffer like{nullptr, parameter.count, dtype, {}};
        sums_[i] = std::make_unique<algorithms::Scratch>(like);
        std::memset(sums_[i]->buffer().data, 0, sums_[i]->buffer().bytes());
    }
    visit_dtype(parameter.gradient_buffer().dtype, [&](auto zero) {
        using T = decltype(zero);
        if constexpr (Real<T>) {
            using Wide = typename Arithmetic<T>::type;
            void* sums = sums_[i]->buffer().data;
            for (std::size_t e = 0; e < parameter.count; ++e) {
                const Wide gradient = static_cast<Wide>(load<T>(parameter.gradient, e));
                store<Wide>(sums, e, load<Wide>(sums, e) + gradient * static_cast<Wide>(weight));
            }
        }
    });
}

}  // namespace DPTK_NAMESPACE::detail
