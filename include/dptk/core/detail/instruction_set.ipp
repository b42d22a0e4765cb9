#pragma once

#include "dptk/core/detail/instruction_set.hpp"

#include <cstdlib>
#include <optional>
#include <string_view>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

inline constexpr const char* instruction_variable = "DPTK_MAX_CPU_ISA";

/// Returns the instruction set that a value of DPTK_MAX_CPU_ISA names.
[[nodiscard]] constexpr std::optional<InstructionSet> instruction_set_named(std::string_view name) noexcept {
    if (name.empty() || name == "AVX512_CORE") return InstructionSet::avx512;
    if (name == "AVX2") return InstructionSet::avx2;
    if (name == "SSE41") return InstructionSet::baseline;
    return std::nullopt;
}

[[nodiscard]] inline std::string_view instruction_variable_value() noexcept {
    const char* const value = std::getenv(instruction_variable);
    return value == nullptr ? "" : value;
}

DPTK_INLINE InstructionSet instruction_limit() noexcept {
    return instruction_set_named(instruction_variable_value()).value_or(InstructionSet::avx512);
}

DPTK_INLINE void check_instruction_limit() {
    const std::string_view value = instruction_variable_value();
    if (!instruction_set_named(value))
        throw ArgumentError(
            text("invalid ", instruction_variable, "='", value, "': expected SSE41, AVX2 or AVX512_CORE"));
}

}  // namespace DPTK_NAMESPACE::detail
