/// Reader for IDX files, the array format of MNIST, plain or compressed with gzip. A file that does not
/// match the format throws FormatError with the path and the offset. Memory grows with the data that was
/// read, not with the sizes that a header claims. Needs zlib.
#pragma once

#include <filesystem>

#include "dptk/core/config.hpp"
#include "dptk/data/readers/file_array.hpp"

namespace DPTK_NAMESPACE {

/// Reads an IDX file: big-endian `00 00 type ndim`, ndim dimensions of 32 bits, and the elements, row-major
/// (format: http://yann.lecun.com/exdb/mnist). Throws FormatError, with the path and the offset in the
/// decompressed data, if the file cannot be opened, is not IDX, is shorter or longer than its header says,
/// or is damaged gzip.
[[nodiscard]] FileArray read_idx(const std::filesystem::path& path);

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/data/readers/idx.ipp"
#endif
