/// Reads a pair of IDX files, images and labels, into an ImageDataset: MNIST, Fashion-MNIST and dptk's own
/// digits have this format. Files that do not match throw FormatError with the file and the offset.
#pragma once

#include <filesystem>

#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/image_dataset.hpp"

namespace DPTK_NAMESPACE {

/// Reads images (u8, [n, height, width] or [n, channels, height, width]) and labels (u8, [n]). Throws
/// FormatError if a file has another dtype or number of dimensions, if the numbers of images and labels
/// differ, or if a label is not below `options.classes`.
[[nodiscard]] ImageDataset read_idx_images(const std::filesystem::path& images_path,
                                           const std::filesystem::path& labels_path,
                                           ImageDatasetOptions options = {});

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/data/readers/idx_images.ipp"
#endif
