/// ImageDataset keeps labelled 8-bit images of one size in memory, and gives each as a view. Readers of file
/// formats make it; scaling pixels and copying a batch into a network's input are left to the user.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "dptk/core/error.hpp"
#include "dptk/core/text.hpp"

namespace dptk {

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
                 std::vector<std::uint8_t> labels, ImageDatasetOptions options = {})
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
            throw ArgumentError(detail::text("ImageDataset: expected one label an image, found ", shape[0],
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
    [[nodiscard]] ImageDataset subset(std::span<const std::size_t> indices) const {
        std::vector<std::uint8_t> pixels;
        std::vector<std::uint8_t> labels;
        pixels.reserve(indices.size() * pixels_per_image());
        labels.reserve(indices.size());
        for (const std::size_t index : indices) {
            if (index >= size()) {
                throw ArgumentError(detail::text("ImageDataset: expected indices below ", size(),
                                                 " for a subset, found ", index));
            }
            const LabelledImageRef image = (*this)[index];
            pixels.insert(pixels.end(), image.pixels.begin(), image.pixels.end());
            labels.push_back(image.label);
        }
        const std::size_t shape[] = {indices.size(), channels_, height_, width_};
        return ImageDataset(std::move(pixels), shape, std::move(labels), {.classes = classes_});
    }

  private:
    [[nodiscard]] static std::uint64_t next_id() noexcept {
        static std::atomic<std::uint64_t> last = 0;
        return ++last;
    }

    [[nodiscard]] std::size_t smallest_class_count() const {
        return labels_.empty() ? 0 : std::size_t{*std::max_element(labels_.begin(), labels_.end())} + 1;
    }

    void check_labels() const {
        for (std::size_t i = 0; i < labels_.size(); ++i) {
            if (labels_[i] < classes_) continue;
            throw ArgumentError(detail::text("ImageDataset: expected labels below ", classes_, ", found ",
                                             labels_[i], " for image ", i));
        }
    }

    std::vector<std::uint8_t> pixels_;
    std::vector<std::uint8_t> labels_;
    std::size_t channels_ = 0;
    std::size_t height_ = 0;
    std::size_t width_ = 0;
    std::size_t classes_ = 0;
    std::uint64_t id_ = next_id();
};

}  // namespace dptk
