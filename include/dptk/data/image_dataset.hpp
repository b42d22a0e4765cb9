/// ImageDataset keeps labeled 8-bit images of one size in memory and returns views of them. Readers of file
/// formats construct it; scaling pixels and copying a batch into a model's input are left to the caller.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/fnv1a.hpp"

namespace DPTK_NAMESPACE {

/// Properties of a dataset that its images and labels do not determine.
struct ImageDatasetOptions {
    /// The number of classes; 0 means the largest label + 1.
    std::size_t classes = 0;
};

/// One image of a dataset: its pixels, by channel, row and column, and its label. A view into the dataset.
struct LabeledImageRef {
    std::span<const std::uint8_t> pixels;  ///< The pixels, one byte each.
    std::uint8_t label = 0;                ///< The class, counted from 0.

    /// Continues a hash of samples: see dataset_fingerprint().
    [[nodiscard]] std::uint64_t fingerprint(std::uint64_t hash) const noexcept {
        hash = detail::fnv1a({reinterpret_cast<const char*>(pixels.data()), pixels.size()}, hash);
        return detail::fnv1a({reinterpret_cast<const char*>(&label), 1}, hash);
    }
};

template <class T>
struct Serializer;

/// A view cannot be sent: its pixels are in the memory of this process.
template <>
struct Serializer<LabeledImageRef> {};

/// Images with one label each. Satisfies IndexableDataset.
class ImageDataset {
  public:
    /// `pixels` are row-major, of shape [n, height, width] or [n, channels, height, width], with n
    /// `labels`. Throws ArgumentError if the shape has another number of dimensions, if the numbers of
    /// pixels, images and labels do not match, or if a label is not below `options.classes`.
    ImageDataset(std::vector<std::uint8_t> pixels, std::span<const std::size_t> shape,
                 std::vector<std::uint8_t> labels, ImageDatasetOptions options = {});

    ImageDataset(ImageDataset&&) noexcept = default;
    ImageDataset& operator=(ImageDataset&&) noexcept = default;

    /// Returns the number of images.
    [[nodiscard]] std::size_t size() const noexcept { return labels_.size(); }

    /// Returns the number of channels of each image.
    [[nodiscard]] std::size_t channels() const noexcept { return channels_; }

    /// Returns the height of each image in pixels.
    [[nodiscard]] std::size_t height() const noexcept { return height_; }

    /// Returns the width of each image in pixels.
    [[nodiscard]] std::size_t width() const noexcept { return width_; }

    /// Returns the number of classes; all labels are below it.
    [[nodiscard]] std::size_t classes() const noexcept { return classes_; }

    /// Returns the number of pixel bytes of each image.
    [[nodiscard]] std::size_t pixels_per_image() const noexcept { return channels_ * height_ * width_; }

    /// Returns image `index`, which must be less than size(). The view is valid as long as the dataset
    /// exists.
    [[nodiscard]] LabeledImageRef operator[](std::size_t index) const noexcept {
        const std::span<const std::uint8_t> all(pixels_);
        return {all.subspan(index * pixels_per_image(), pixels_per_image()), labels_[index]};
    }

    /// Returns a hash of all labels, and of the first and the last image.
    [[nodiscard]] std::uint64_t fingerprint() const noexcept;

    /// Returns the pixels of all images, one image after the other.
    [[nodiscard]] std::span<const std::uint8_t> pixels() const noexcept { return pixels_; }

    /// Returns the labels, one for each image.
    [[nodiscard]] std::span<const std::uint8_t> labels() const noexcept { return labels_; }

    /// Returns a number that is unique among the datasets of this process. Moving a dataset moves its id.
    [[nodiscard]] std::uint64_t id() const noexcept { return id_; }

    /// Returns a dataset with copies of the images at `indices`, in that order, and the same number of
    /// classes. Throws ArgumentError if an index is not less than size().
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
