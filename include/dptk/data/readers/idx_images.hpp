/// Reads a pair of IDX files, images and labels, as MNIST, Fashion-MNIST and dptk's own digits come, into an
/// ImageDataset. Whatever does not fit together is a FormatError that names the file and the offset.
#pragma once

#include <filesystem>

#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/image_dataset.hpp"

namespace DPTK_NAMESPACE {

/// Images of u8 [n, height, width] or [n, channels, height, width], and labels of u8 [n]. Throws FormatError
/// where a file is not of that kind, the counts differ, or a label is not below `options.classes`.
[[nodiscard]] ImageDataset read_idx_images(const std::filesystem::path& images_path,
                                           const std::filesystem::path& labels_path,
                                           ImageDatasetOptions options = {});

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/data/readers/idx_images.ipp"
#endif
