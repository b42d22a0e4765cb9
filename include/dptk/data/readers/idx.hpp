/// Reads arrays in IDX, the format of MNIST, plain or compressed with gzip. A file is read whole or not at
/// all: whatever does not agree with the format is a FormatError with the path and the offset, and memory
/// grows with the data that is there, not with what a header claims. Needs zlib.
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

/// An array of any element type: elements in host byte order, row-major.
struct IdxArray {
    DType dtype = DType::u8;         ///< Of each element.
    std::vector<std::size_t> shape;  ///< The outermost dimension first.
    std::vector<std::byte> bytes;    ///< Of all elements.
};

/// Reads an IDX file: big-endian `00 00 type ndim`, ndim dimensions of 32 bits, and the elements, row-major
/// (format: http://yann.lecun.com/exdb/mnist). Throws FormatError, with the path and the offset in the
/// decompressed data, where the file cannot be opened, is not IDX, ends too early or goes on too long, or is
/// damaged gzip.
[[nodiscard]] IdxArray read_idx(const std::filesystem::path& path);

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/data/readers/idx.ipp"
#endif
