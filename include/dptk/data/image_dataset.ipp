#pragma once

#include "dptk/data/image_dataset.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE ImageDataset::ImageDataset(std::vector<std::uint8_t> pixels, std::span<const std::size_t> shape,
                                       std::vector<std::uint8_t> labels, ImageDatasetOptions options)
    : pixels_(std::move(pixels)), labels_(std::move(labels)), classes_(options.classes) {
    if (shape.size() != 3 && shape.size() != 4) {
        throw ArgumentError(
            detail::text("ImageDataset: expected images of shape [n, height, width] or "
                         "[n, channels, height, width], found ",
                         detail::shape_text(shape)));
    }
    channels_ = shape.size() == 4 ? shape[1] : 1;
    height_ = shape[shape.size() - 2];
    width_ = shape[shape.size() - 1];
    if (shape[0] != labels_.size()) {
        throw ArgumentError(detail::text("ImageDataset: expected one label per image, found ", shape[0],
                                         " images and ", labels_.size(), " labels"));
    }
    if (pixels_.size() != size() * pixels_per_image()) {
        throw ArgumentError(detail::text("ImageDataset: expected ", size() * pixels_per_image(),
                                         " pixels for images of shape ", detail::shape_text(shape),
                                         ", found ", pixels_.size()));
    }
    if (classes_ == 0) classes_ = smallest_class_count();
    check_labels();
}

DPTK_INLINE ImageDataset ImageDataset::subset(std::span<const std::size_t> indices) const {
    std::vector<std::uint8_t> pixels;
    std::vector<std::uint8_t> labels;
    pixels.reserve(indices.size() * pixels_per_image());
    labels.reserve(indices.size());
    for (const std::size_t index : indices) {
        if (index >= size()) {
            throw ArgumentError(detail::text("ImageDataset: expected indices below ", size(),
                                             " for a subset, found ", index));
        }
        const LabeledImageRef image = (*this)[index];
        pixels.insert(pixels.end(), image.pixels.begin(), image.pixels.end());
        labels.push_back(image.label);
    }
    const std::size_t shape[] = {indices.size(), channels_, height_, width_};
    return ImageDataset(std::move(pixels), shape, std::move(labels), {.classes = classes_});
}

DPTK_INLINE std::uint64_t ImageDataset::fingerprint() const noexcept {
    const std::string_view labels(reinterpret_cast<const char*>(labels_.data()), labels_.size());
    const std::uint64_t hash = detail::fnv1a(labels);
    if (labels_.empty()) return hash;
    return (*this)[size() - 1].fingerprint((*this)[0].fingerprint(hash));
}

DPTK_INLINE std::size_t ImageDataset::smallest_class_count() const {
    return labels_.empty() ? 0 : std::size_t{*std::max_element(labels_.begin(), labels_.end())} + 1;
}

DPTK_INLINE void ImageDataset::check_labels() const {
    for (std::size_t i = 0; i < labels_.size(); ++i) {
        if (labels_[i] < classes_) continue;
        throw ArgumentError(detail::text("ImageDataset: expected labels below ", classes_, ", found ",
                                         labels_[i], " for image ", i));
    }
}

}  // namespace DPTK_NAMESPACE
