#pragma once

#include "dptk/data/transforms/image_transforms.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/transforms/resample.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE std::string Resize::describe() const {
    return keeps_ratio_ ? detail::text("Resize(", height_, ")")
                        : detail::text("Resize(", height_, ", ", width_, ")");
}

DPTK_INLINE std::string CenterCrop::describe() const {
    return detail::text("CenterCrop(", height_, ", ", width_, ")");
}

DPTK_INLINE std::string RandomCrop::describe() const {
    return detail::text("RandomCrop(", height_, ", ", width_, ", padding ", options_.padding, ")");
}

DPTK_INLINE std::string RandomResizedCrop::describe() const {
    return detail::text("RandomResizedCrop(", height_, ", ", width_, ", scale ", options_.smallest_scale,
                        " to ", options_.largest_scale, ", ratio ", options_.smallest_ratio, " to ",
                        options_.largest_ratio, ")");
}

DPTK_INLINE std::string RandomHorizontalFlip::describe() const {
    return detail::text("RandomHorizontalFlip(", probability_, ")");
}

DPTK_INLINE std::string Normalize::describe() const {
    std::string channels;
    for (std::size_t i = 0; i < statistics_.mean.size(); ++i)
        channels += detail::text(i == 0 ? "" : ", ", statistics_.mean[i], " / ", statistics_.deviation[i]);
    return detail::text("Normalize(", channels, ")");
}

DPTK_INLINE Image Resize::operator()(const Image& image) const {
    if (!keeps_ratio_) return resample(image, width_, height_);
    const std::size_t shorter = std::min(image.width, image.height);
    const auto scaled = [&](std::size_t side) { return shorter == 0 ? side : height_ * side / shorter; };
    return resample(image, scaled(image.width), scaled(image.height));
}

DPTK_INLINE Image RandomCrop::operator()(const Image& image, SampleRandom& random) const {
    if (options_.padding > 0) return RandomCrop(height_, width_)(pad(image, options_.padding), random);
    if (image.width < width_ || image.height < height_)
        throw ArgumentError(detail::text("RandomCrop: expected an image of at least ", width_, " x ", height_,
                                         " pixels, found ", image.width, " x ", image.height));
    const std::size_t top = random.below(image.height - height_ + 1);
    const std::size_t left = random.below(image.width - width_ + 1);
    return crop(image, {.left = left, .top = top, .width = width_, .height = height_});
}

DPTK_INLINE RandomResizedCrop::RandomResizedCrop(std::size_t height, std::size_t width,
                                                 const RandomResizedCropOptions& options)
    : height_(height), width_(width), options_(options) {
    const auto check = [](std::string_view name, double smallest, double largest) {
        if (smallest > 0 && smallest <= largest && std::isfinite(largest)) return;
        throw ArgumentError(detail::text("RandomResizedCrop: expected 0 < smallest_", name, " <= largest_",
                                         name, ", found ", smallest, " and ", largest));
    };
    check("scale", options.smallest_scale, options.largest_scale);
    check("ratio", options.smallest_ratio, options.largest_ratio);
}

DPTK_INLINE Image RandomResizedCrop::operator()(const Image& image, SampleRandom& random) const {
    return resample(image, window(image.width, image.height, random), width_, height_);
}

DPTK_INLINE CropWindow RandomResizedCrop::window(std::size_t width, std::size_t height,
                                                 SampleRandom& random) const {
    const auto rounded = [](double x) { return static_cast<std::size_t>(std::nearbyint(x)); };
    const auto all_width = static_cast<double>(width), all_height = static_cast<double>(height);
    for (int attempt = 0; attempt < 10; ++attempt) {
        const double area =
            all_width * all_height * random.between(options_.smallest_scale, options_.largest_scale);
        const double ratio =
            std::exp(random.between(std::log(options_.smallest_ratio), std::log(options_.largest_ratio)));
        CropWindow part;
        part.width = rounded(std::min(std::sqrt(area * ratio), 1e9));
        part.height = rounded(std::min(std::sqrt(area / ratio), 1e9));
        if (part.width == 0 || part.width > width || part.height == 0 || part.height > height) continue;
        part.top = random.below(height - part.height + 1);
        part.left = random.below(width - part.width + 1);
        return part;
    }
    CropWindow middle{.width = width, .height = height};
    if (all_width / all_height < options_.smallest_ratio) {
        middle.height = std::min(rounded(all_width / options_.smallest_ratio), height);
    } else if (all_width / all_height > options_.largest_ratio) {
        middle.width = std::min(rounded(all_height * options_.largest_ratio), width);
    }
    middle.top = (height - middle.height) / 2;
    middle.left = (width - middle.width) / 2;
    return middle;
}

DPTK_INLINE Normalize::Normalize(const ChannelStatistics& statistics) : statistics_(statistics) {
    const auto& [mean, deviation] = statistics;
    if (mean.empty() || mean.size() != deviation.size())
        throw ArgumentError(detail::text("Normalize: expected as many means as deviations, found ",
                                         mean.size(), " and ", deviation.size()));
    values_.resize(mean.size());
    for (std::size_t channel = 0; channel < mean.size(); ++channel) {
        if (!(std::abs(deviation[channel]) > 0))
            throw ArgumentError(
                detail::text("Normalize: the deviation of channel ", channel, " is ", deviation[channel]));
        for (std::size_t pixel = 0; pixel < 256; ++pixel)
            values_[channel][pixel] = (static_cast<float>(pixel) / 255 - mean[channel]) / deviation[channel];
    }
}

DPTK_INLINE void Normalize::write(const Image& image, float* out) const {
    if (image.channels != values_.size())
        throw ArgumentError(detail::text("Normalize: expected an image with ", values_.size(),
                                         " channels, found ", image.channels));
    const std::size_t count = image.width * image.height;
    for (std::size_t channel = 0; channel < image.channels; ++channel) {
        const std::array<float, 256>& value_of = values_[channel];
        const std::uint8_t* pixel = image.pixels.data() + channel;
        for (std::size_t i = 0; i < count; ++i, pixel += image.channels) *out++ = value_of[*pixel];
    }
}

DPTK_INLINE ImageTransforms::ImageTransforms(std::vector<ImageTransform> transforms) {
    for (ImageTransform& transform : transforms) {
        if (normalize_)
            throw ArgumentError(
                "expected Normalize to be the last transform of an image, found another after it");
        description_ += (description_.empty() ? "" : ", ") + transform.description_;
        if (auto* const step = std::get_if<ImageTransform::Step>(&transform.step_)) {
            steps_.push_back(std::move(*step));
        } else {
            normalize_ = std::get<Normalize>(std::move(transform.step_));
        }
    }
}

DPTK_INLINE Image ImageTransforms::operator()(Image image, SampleRandom random) const {
    for (const ImageTransform::Step& step : steps_) {
        image = step(std::move(image), random);
        if (image.pixels.size() != image.width * image.height * image.channels)
            throw ArgumentError(detail::text("a transform returned an image of ", image.width, " x ",
                                             image.height, " pixels with ", image.channels, " channels, and ",
                                             image.pixels.size(), " bytes"));
    }
    return image;
}

}  // namespace DPTK_NAMESPACE
