/// ImageDataset keeps labelled 8-bit images of one size in memory, and gives each as a view. Readers of file
/// formats make it; scaling pixels and copying a batch into a network's input are left to the user.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// What the images and labels do not tell.
struct ImageDatasetOptions {
    /// The number of classes; 0 stands for the largest label + 1.
    std::size_t classes = 0;
};

/// One image of a dataset: its pixels, by channel, row and column, and its label. Points into the dataset.
struct LabelledImageRef {
    std::span<const std::uint8_t> pixels;  ///< One byte each.
    std::uint8_t label = 0;                ///< Its class, from 0 on.
};

/// Images with a label each. An IndexableDataset.
class ImageDataset {
  public:
    /// `pixels` are row-major, of shape [n, height, width] or [n, channels, height, width], with n `labels`.
    /// Throws ArgumentError where the shape has another number of dimensions, where the counts of pixels,
    /// images and labels do not agree, and where a label is not below `options.classes`.
    ImageDataset(std::vector<std::uint8_t> pixels, std::span<const std::size_t> shape,
                 std::vector<std::uint8_t> labels, ImageDatasetOptions options = {});

    ImageDataset(ImageDataset&&) noexcept = default;
    ImageDataset& operator=(ImageDataset&&) noexcept = default;

    /// The number of images.
    [[nodiscard]] std::size_t size() const noexcept { return labels_.size(); }

    /// Of each image.
    [[nodiscard]] std::size_t channels() const noexcept { return channels_; }

    /// Of each image, in pixels.
    [[nodiscard]] std::size_t height() const noexcept { return height_; }

    /// Of each image, in pixels.
    [[nodiscard]] std::size_t width() const noexcept { return width_; }

    /// The number of classes: labels are below it.
    [[nodiscard]] std::size_t classes() const noexcept { return classes_; }

    /// Bytes of each image.
    [[nodiscard]] std::size_t pixels_per_image() const noexcept { return channels_ * height_ * width_; }

    /// Image `index`, which is below size(). The view is good for as long as the dataset lives.
    [[nodiscard]] LabelledImageRef operator[](std::size_t index) const noexcept {
        const std::span<const std::uint8_t> all(pixels_);
        return {all.subspan(index * pixels_per_image(), pixels_per_image()), labels_[index]};
    }

    /// Of all images, one after the other.
    [[nodiscard]] std::span<const std::uint8_t> pixels() const noexcept { return pixels_; }

    /// One label for each image.
    [[nodiscard]] std::span<const std::uint8_t> labels() const noexcept { return labels_; }

    /// Tells these images from those of every other dataset that this process has made; goes along where the
    /// dataset is moved.
    [[nodiscard]] std::uint64_t id() const noexcept { return id_; }

    /// A dataset of copies of the images at `indices`, in that order, with the same number of classes.
    /// Throws ArgumentError where an index is not below size().
    [[nodiscard]] ImageDataset subset(std::span<const std::size_t> indices) const;

  private:
    [[nodiscard]] static std::uint64_t next_id() noexcept {
        static std::atomic<std::uint64_t> last = 0;
        return ++last;
    }

    [[nodiscard]] std::size_t smallest_class_count() const;

    void check_labels() const;

    std::vector<std::uint8_t> pixels_;
    std::vector<std::uint8_t> labels_;
    std::size_t channels_ = 0;
    std::size_t height_ = 0;
    std::size_t width_ = 0;
    std::size_t classes_ = 0;
    std::uint64_t id_ = next_id();
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/error.hpp"
#include "dptk/data/image_dataset.ipp"
#endif
