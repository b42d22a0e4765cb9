#pragma once

#include "dptk/data/readers/idx_images.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/readers/idx.hpp"

namespace DPTK_NAMESPACE::detail {

/// Reads an array of u8. Throws FormatError if its number of dimensions is outside the given limits.
[[nodiscard]] DPTK_INLINE FileArray read_idx_u8(const std::filesystem::path& path, std::string_view what,
                                                std::size_t fewest_dimensions, std::size_t most_dimensions) {
    FileArray array = read_idx(path);
    if (array.dtype != DType::u8) {
        throw FormatError(
            text(path.string(), ": byte 2: expected ", what, " of type u8, found ", dtype_name(array.dtype)));
    }
    if (array.shape.size() < fewest_dimensions || array.shape.size() > most_dimensions) {
        const std::string counts = fewest_dimensions == most_dimensions
                                       ? text(fewest_dimensions)
                                       : text(fewest_dimensions, " or ", most_dimensions);
        throw FormatError(text(path.string(), ": byte 3: expected ", counts,
                               " as the number of dimensions of ", what, ", found shape ",
                               shape_text(array.shape)));
    }
    return array;
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE ImageDataset read_idx_images(const std::filesystem::path& images_path,
                                         const std::filesystem::path& labels_path,
                                         ImageDatasetOptions options) {
    const FileArray images = detail::read_idx_u8(images_path, "images", 3, 4);
    const FileArray labels = detail::read_idx_u8(labels_path, "labels", 1, 1);
    if (images.shape[0] != labels.shape[0]) {
        throw FormatError(detail::text("expected as many images as labels, found ", images.shape[0], " in ",
                                       images_path.string(), " and ", labels.shape[0], " in ",
                                       labels_path.string(), " (the count is at byte 4 of each file)"));
    }
    std::vector<std::uint8_t> label_values = detail::to_u8(labels);
    for (std::size_t i = 0; options.classes != 0 && i < label_values.size(); ++i) {
        constexpr std::size_t header_bytes = 8;
        if (label_values[i] < options.classes) continue;
        throw FormatError(detail::text(labels_path.string(), ": byte ", header_bytes + i,
                                       ": expected a label below ", options.classes, ", found ",
                                       label_values[i]));
    }
    return ImageDataset(detail::to_u8(images), images.shape, std::move(label_values), options);
}

}  // namespace DPTK_NAMESPACE
