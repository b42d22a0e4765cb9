/// A batch of images in the form that a network accepts: floating-point pixels, and their labels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/data/image_dataset.hpp"
#include "dptk/core/tensor.hpp"

namespace DPTK_NAMESPACE {

/// Owns the memory of a batch and reuses it for the next one.
template <class T>
class ImageBatch {
  public:
    /// Copies the images `indices` of the dataset, with every pixel multiplied by `scale`. Replaces
    /// the previous batch.
    void load(const ImageDataset& dataset, std::span<const std::size_t> indices, T scale) {
        images_.resize(nn::Shape{indices.size(), dataset.channels(), dataset.height(), dataset.width()});
        labels_.clear();
        T* pixel = images_.values().data();
        for (const std::size_t index : indices) {
            const LabeledImageRef image = dataset[index];
            for (const std::uint8_t value : image.pixels) *pixel++ = static_cast<T>(value) * scale;
            labels_.push_back(image.label);
        }
    }

    /// Returns the images, of shape [n, channels, height, width].
    [[nodiscard]] const nn::Tensor<T>& images() const noexcept { return images_; }

    /// Returns the n labels.
    [[nodiscard]] const std::vector<std::uint8_t>& labels() const noexcept { return labels_; }

  private:
    nn::Tensor<T> images_;
    std::vector<std::uint8_t> labels_;
};

}  // namespace DPTK_NAMESPACE
