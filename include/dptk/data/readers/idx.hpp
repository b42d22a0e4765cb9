/// Reader for IDX files, the array format of MNIST, plain or compressed with gzip. A file that does not
/// match the format throws FormatError with the path and the offset. Memory grows with the data that was
/// read, not with the sizes that a header claims. Needs zlib.
#pragma once

#if !__has_include(<zlib.h>)
#error "dptk/data/readers/idx.hpp needs zlib: install zlib1g-dev (Debian, Ubuntu) or zlib-devel (Fedora)."
#endif

#include <cstddef>
#include <filesystem>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/dtype.hpp"

namespace DPTK_NAMESPACE {

/// An array of any element type. Elements are row-major, in host byte order.
struct IdxArray {
    DType dtype = DType::u8;         ///< The type of each element.
    std::vector<std::size_t> shape;  ///< The sizes of the dimensions, outermost first.
    std::vector<std::byte> bytes;    ///< The bytes of all elements.
};

/// Reads an IDX file: big-endian `00 00 type ndim`, ndim dimensions of 32 bits, and the elements, row-major
/// (format: http://yann.lecun.com/exdb/mnist). Throws FormatError, with the path and the offset in the
/// decompressed data, if the file cannot be opened, is not IDX, is shorter or longer than its header says,
/// or is damaged gzip.
[[nodiscard]] IdxArray read_idx(const std::filesystem::path& path);

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/data/readers/idx.ipp"
#endif
