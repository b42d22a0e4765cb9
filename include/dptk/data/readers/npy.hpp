/// Reader for .npy files, NumPy's array format, plain or compressed with gzip. A file that does not match the
/// format throws FormatError with the path and the offset. Memory grows with the data that was read, not with
/// the sizes that a header claims.
#pragma once

#include <filesystem>

#include "dptk/core/config.hpp"
#include "dptk/data/image_dataset.hpp"
#include "dptk/data/readers/file_array.hpp"

namespace DPTK_NAMESPACE {

/// Reads an array of numbers, of format version 1.0, 2.0 or 3.0 (format:
/// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html). Both byte orders, and arrays in
/// C and in Fortran order, are converted to row-major elements in host byte order. Throws FormatError if the
/// file cannot be opened, is no .npy file, has elements of another type, or is shorter or longer than its
/// header says.
[[nodiscard]] FileArray read_npy(const std::filesystem::path& path);

/// Reads images (u8, [n, height, width] or [n, channels, height, width]) and labels (integers of any type,
/// [n]). Throws FormatError if a file has another type or number of dimensions, if the numbers of images and
/// labels differ, or if a label is not in [0, 255] or not below `options.classes`.
[[nodiscard]] ImageDataset read_npy_images(const std::filesystem::path& images_path,
                                           const std::filesystem::path& labels_path,
                                           ImageDatasetOptions options = {});

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/data/readers/npy.ipp"
#endif
