/// The header of a safetensors file: JSON with the tensors' types, shapes and offsets, and texts about the
/// file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/weights/safetensors_entry.hpp"

namespace DPTK_NAMESPACE::detail {

struct SafetensorsHeader {
    std::vector<SafetensorsEntry> entries;     ///< In the order of their bytes.
    std::vector<UnreadableTensor> unreadable;  ///< In the order of their bytes.
    std::map<std::string, std::string> metadata;
};

/// The position of the header's text in the file, after its length.
inline constexpr std::size_t safetensors_header_begin = 8;

/// Throws FormatError with the path and the offset in the file.
[[noreturn]] void throw_bad_safetensors(const std::filesystem::path& path, std::size_t offset,
                                        std::string_view problem);

/// Parses the header's text. `data_bytes` is how many bytes the file has after it. Throws FormatError unless
/// the text is valid and the tensors fill these bytes without gaps.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(const std::filesystem::path& path,
                                                         std::string_view header, std::size_t data_bytes);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/weights/detail/safetensors_header.ipp"
#endif
