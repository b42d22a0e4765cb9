/// The instruction sets for which dptk has code, and DPTK_MAX_CPU_ISA, which limits those that it uses.
#pragma once

#include <cstdint>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

enum class InstructionSet : std::uint8_t { baseline, avx2, avx512 };

/// Returns the largest instruction set that DPTK_MAX_CPU_ISA allows. It has the values of oneDNN's
/// ONEDNN_MAX_CPU_ISA: SSE41, AVX2 or AVX512_CORE. Returns avx512 if it is not set, or has another value.
[[nodiscard]] InstructionSet instruction_limit() noexcept;

/// Throws ArgumentError if DPTK_MAX_CPU_ISA has another value.
void check_instruction_limit();

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/detail/instruction_set.ipp"
#endif
