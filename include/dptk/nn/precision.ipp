#pragma once

#include "dptk/nn/precision.hpp"

namespace DPTK_NAMESPACE::nn {

DPTK_INLINE std::string_view precision_name(Precision precision) noexcept {
    switch (precision) {
        case Precision::fp32: return "fp32";
        case Precision::tf32: return "tf32";
        case Precision::bf16: break;
    }
    return "bf16";
}

DPTK_INLINE DType activation_type(Precision precision) noexcept {
    return precision == Precision::bf16 ? DType::bf16 : DType::f32;
}

}  // namespace DPTK_NAMESPACE::nn
