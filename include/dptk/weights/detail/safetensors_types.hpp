/// The names of element types in safetensors files.
#pragma once

#include <array>
#include <bit>
#include <string_view>

#include "dptk/core/config.hpp"
#include "dptk/core/dtype.hpp"

namespace DPTK_NAMESPACE::detail {

static_assert(std::endian::native == std::endian::little, "dptk: safetensors files are little-endian");

struct SafetensorsType {
    std::string_view name;
    DType dtype;
};

inline constexpr std::array<SafetensorsType, 14> safetensors_types{{
    {"F64", DType::f64},
    {"F32", DType::f32},
    {"F16", DType::f16},
    {"BF16", DType::bf16},
    {"I64", DType::i64},
    {"I32", DType::i32},
    {"I16", DType::i16},
    {"I8", DType::i8},
    {"U64", DType::u64},
    {"U32", DType::u32},
    {"U16", DType::u16},
    {"U8", DType::u8},
    {"BOOL", DType::boolean},
    {"C64", DType::c64},
}};

}  // namespace DPTK_NAMESPACE::detail
