/// file_bytes(), which reads a whole file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns the bytes of a file. Throws FormatError with the path if it cannot be read, or is no regular file.
[[nodiscard]] std::vector<std::byte> file_bytes(const std::filesystem::path& path);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/data/detail/file_bytes.ipp"
#endif
