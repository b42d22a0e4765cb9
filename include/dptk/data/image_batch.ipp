#pragma once

#include "dptk/data/image_batch.hpp"

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void write_values(const TransformedImage& sample, float* out) {
    const Image& image = sample.image;
    if (sample.normalize != nullptr) return sample.normalize->write(image, out);
    const std::size_t count = image.width * image.height;
    for (std::size_t channel = 0; channel < image.channels; ++channel) {
        for (std::size_t i = 0; i < count; ++i)
            *out++ = static_cast<float>(image.pixels[i * image.channels + channel]) / 255;
    }
}

DPTK_INLINE void throw_other_size(const Image& image, const Shape& expected) {
    throw ArgumentError(text("expected an image of ", expected[3], " x ", expected[2], " pixels with ",
                             expected[1], " channels, as the first one of the batch, found ", image.width,
                             " x ", image.height, " with ", image.channels,
                             ": add a transform that gives all images one size"));
}

DPTK_INLINE void check_transforms(const ImageTransforms& transforms, bool samples_have_images,
                                  bool has_own_collate) {
    if (!transforms.empty() && !samples_have_images)
        throw ArgumentError(
            "DataLoader: `transform` needs samples that are a dptk::Image, or pairs that begin with one; use "
            "dptk::Map for other samples");
    if (transforms.normalize() != nullptr && has_own_collate)
        throw ArgumentError(
            "DataLoader: Normalize needs the default collate function; this program passes its own, which "
            "gets "
            "samples of bytes");
}

}  // namespace DPTK_NAMESPACE::detail
