/// The transforms of images that training uses, with the parameters and distributions of torchvision's
/// transforms of these names. DataLoader applies them in its workers.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/data/image.hpp"
#include "dptk/data/sample_random.hpp"
#include "dptk/data/transforms/crop.hpp"

namespace DPTK_NAMESPACE {

/// Changes the size of an image (see resample()).
class Resize {
  public:
    /// The shorter side gets this length, and the longer one keeps its ratio to it, rounded down.
    explicit Resize(std::size_t shorter_side) noexcept : height_(shorter_side), keeps_ratio_(true) {}
    /// Both sides get the given lengths.
    Resize(std::size_t height, std::size_t width) noexcept : height_(height), width_(width) {}

    /// Throws ArgumentError for a size of 0 or above 2^16.
    [[nodiscard]] Image operator()(const Image& image) const;

    /// Returns the name and the parameters.
    [[nodiscard]] std::string describe() const;

  private:
    std::size_t height_;
    std::size_t width_ = 0;
    bool keeps_ratio_ = false;
};

/// Keeps the middle of an image (see center_crop()).
class CenterCrop {
  public:
    /// Keeps a square.
    explicit CenterCrop(std::size_t side) noexcept : CenterCrop(side, side) {}
    /// Keeps a part of this size.
    CenterCrop(std::size_t height, std::size_t width) noexcept : height_(height), width_(width) {}

    /// Returns the middle of the image.
    [[nodiscard]] Image operator()(const Image& image) const { return center_crop(image, width_, height_); }

    /// Returns the name and the parameters.
    [[nodiscard]] std::string describe() const;

  private:
    std::size_t height_;
    std::size_t width_;
};

/// How a RandomCrop treats the border of an image.
struct RandomCropOptions {
    std::size_t padding = 0;  ///< The number of black pixels that are added on each side first.
};

/// Keeps a part of an image. All places are equally likely.
class RandomCrop {
  public:
    /// Keeps a square.
    explicit RandomCrop(std::size_t side, const RandomCropOptions& options = {}) noexcept
        : RandomCrop(side, side, options) {}
    /// Keeps a part of this size.
    RandomCrop(std::size_t height, std::size_t width, const RandomCropOptions& options = {}) noexcept
        : height_(height), width_(width), options_(options) {}

    /// Throws ArgumentError if the image, with its padding, is smaller than the part.
    [[nodiscard]] Image operator()(const Image& image, SampleRandom& random) const;

    /// Returns the name and the parameters.
    [[nodiscard]] std::string describe() const;

  private:
    std::size_t height_;
    std::size_t width_;
    RandomCropOptions options_;
};

/// Which parts a RandomResizedCrop selects.
struct RandomResizedCropOptions {
    double smallest_scale = 0.08;     ///< The smallest area of the part, as a fraction of the image's.
    double largest_scale = 1;         ///< The largest area of the part.
    double smallest_ratio = 3.0 / 4;  ///< The smallest ratio of the part's width to its height.
    double largest_ratio = 4.0 / 3;   ///< The largest ratio of the part's width to its height.
};

/// Selects a part of random area and ratio, and changes its size.
class RandomResizedCrop {
  public:
    /// Makes square images. Throws ArgumentError if a limit is not above 0, or a smallest one is above the
    /// largest.
    explicit RandomResizedCrop(std::size_t side, const RandomResizedCropOptions& options = {})
        : RandomResizedCrop(side, side, options) {}
    /// Makes images of this size, and throws like the constructor above.
    RandomResizedCrop(std::size_t height, std::size_t width, const RandomResizedCropOptions& options = {});

    /// Returns a part of the image in the new size.
    [[nodiscard]] Image operator()(const Image& image, SampleRandom& random) const;

    /// Returns the part that is selected of an image of this size: the area has a uniform distribution, and
    /// the ratio's logarithm too. If ten such parts do not fit into the image, returns its middle.
    [[nodiscard]] CropWindow window(std::size_t width, std::size_t height, SampleRandom& random) const;

    /// Returns the name and the parameters.
    [[nodiscard]] std::string describe() const;

  private:
    std::size_t height_;
    std::size_t width_;
    RandomResizedCropOptions options_;
};

/// Exchanges left and right with a probability.
class RandomHorizontalFlip {
  public:
    /// `probability` is in [0, 1].
    explicit RandomHorizontalFlip(double probability = 0.5) noexcept : probability_(probability) {}

    /// Returns the image or its mirror image.
    [[nodiscard]] Image operator()(Image image, SampleRandom& random) const {
        return random.unit() < probability_ ? flip_horizontally(image) : std::move(image);
    }

    /// Returns the name and the parameters.
    [[nodiscard]] std::string describe() const;

  private:
    double probability_;
};

/// The mean and the standard deviation of each channel, for values in [0, 1].
struct ChannelStatistics {
    std::vector<float> mean;       ///< By channel.
    std::vector<float> deviation;  ///< By channel; not 0.
};

/// The statistics of ImageNet's training images, which networks of torchvision expect.
inline const ChannelStatistics imagenet{{0.485F, 0.456F, 0.406F}, {0.229F, 0.224F, 0.225F}};

/// Converts pixels to (pixel / 255 - mean) / deviation of their channel. Must be the last transform.
class Normalize {
  public:
    /// Throws ArgumentError unless there are as many means as deviations, and no deviation is 0.
    explicit Normalize(const ChannelStatistics& statistics);

    /// Writes the planes of the image's channels: `out` has shape [channels, height, width]. Throws
    /// ArgumentError if the image has another number of channels.
    void write(const Image& image, float* out) const;

    /// Returns the name and the parameters.
    [[nodiscard]] std::string describe() const;

  private:
    ChannelStatistics statistics_;
    std::vector<std::array<float, 256>> values_;  // by channel and pixel
};

/// One transform: a function of an image, or of an image and its SampleRandom, that returns an image; or a
/// Normalize. Several workers call the function at the same time.
class ImageTransform {
  public:
    /// Makes a transform of a function `Image fn(Image)` or `Image fn(Image, SampleRandom&)`. If it has a
    /// member `std::string describe() const`, ranks and runs can be compared by its text.
    template <class Fn>
        requires(!std::is_same_v<std::remove_cvref_t<Fn>, ImageTransform>) &&
                (std::is_invocable_r_v<Image, const Fn&, Image, SampleRandom&> ||
                 std::is_invocable_r_v<Image, const Fn&, Image>)
    ImageTransform(Fn fn) {
        if constexpr (requires { std::string(fn.describe()); }) description_ = fn.describe();
        if constexpr (std::is_invocable_r_v<Image, const Fn&, Image, SampleRandom&>) {
            step_ = Step(std::move(fn));
        } else {
            step_ = Step([fn = std::move(fn)](Image image, SampleRandom&) { return fn(std::move(image)); });
        }
    }
    /// Makes a transform of a Normalize.
    ImageTransform(Normalize normalize) : description_(normalize.describe()), step_(std::move(normalize)) {}

  private:
    friend class ImageTransforms;
    using Step = std::function<Image(Image, SampleRandom&)>;

    std::string description_ = "a function";
    std::variant<Step, Normalize> step_;
};

/// Transforms, one after the other.
class ImageTransforms {
  public:
    ImageTransforms() = default;

    /// Throws ArgumentError if a Normalize is not the last transform.
    ImageTransforms(std::initializer_list<ImageTransform> transforms)
        : ImageTransforms(std::vector<ImageTransform>(transforms)) {}
    /// Throws like the constructor above.
    explicit ImageTransforms(std::vector<ImageTransform> transforms);

    /// Returns whether there are no transforms.
    [[nodiscard]] bool empty() const noexcept { return steps_.empty() && !normalize_; }

    /// Returns the Normalize, or null without one.
    [[nodiscard]] const Normalize* normalize() const noexcept { return normalize_ ? &*normalize_ : nullptr; }

    /// Returns the image after all transforms but the Normalize. Throws ArgumentError if a transform returns
    /// an image with another number of pixels than its size says.
    [[nodiscard]] Image operator()(Image image, SampleRandom random) const;

    /// Returns the descriptions of all transforms, separated by commas; of a function without describe(),
    /// that it is one.
    [[nodiscard]] const std::string& describe() const noexcept { return description_; }

  private:
    std::vector<ImageTransform::Step> steps_;
    std::optional<Normalize> normalize_;
    std::string description_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/data/transforms/image_transforms.ipp"
#endif
