/// Batches of images for DataLoader: the transforms of a sample's image, and the tensor of a batch.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "dptk/core/config.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/data/collate.hpp"
#include "dptk/data/image.hpp"
#include "dptk/data/sample_random.hpp"
#include "dptk/data/transforms/image_transforms.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// An image after all transforms but the last one.
struct TransformedImage {
    Image image;
    const Normalize* normalize = nullptr;  // null: the values are pixel / 255
};

/// What becomes of a sample that is an Image, or a pair or tuple that begins with one. `type` is void for any
/// other sample.
template <class Sample>
struct TransformedSample {
    using type = void;
};
template <>
struct TransformedSample<Image> {
    using type = TransformedImage;
};
template <class... Other>
struct TransformedSample<std::tuple<Image, Other...>> {
    using type = std::tuple<TransformedImage, Other...>;
};
template <class Other>
struct TransformedSample<std::pair<Image, Other>> {
    using type = std::pair<TransformedImage, Other>;
};

template <class Sample>
inline constexpr bool has_image = !std::is_void_v<typename TransformedSample<Sample>::type>;

/// How DataLoader collates samples of this type by default.
template <class Sample>
using DefaultCollation =
    CollateByType<std::conditional_t<has_image<Sample>, typename TransformedSample<Sample>::type, Sample>>;

/// Returns the sample with a transformed image, as an Image or as a TransformedImage in `Result`.
template <class Result, class Sample>
[[nodiscard]] Result transformed(Sample sample, const ImageTransforms& transforms,
                                 const SampleRandom& random) {
    if constexpr (std::is_same_v<Result, Image>) {
        return transforms(std::move(sample), random);
    } else if constexpr (std::is_same_v<Result, TransformedImage>) {
        return {transforms(std::move(sample), random), transforms.normalize()};
    } else {
        return std::apply(
            [&](auto& image, auto&... other) {
                using First = std::tuple_element_t<0, Result>;
                return Result(transformed<First>(std::move(image), transforms, random), std::move(other)...);
            },
            sample);
    }
}

/// Writes an image of shape [channels, height, width].
void write_values(const TransformedImage& sample, float* out);

/// Throws ArgumentError.
[[noreturn]] void throw_other_size(const Image& image, const Shape& expected);

/// Throws ArgumentError if the loader cannot apply the transforms to its samples.
void check_transforms(const ImageTransforms& transforms, bool samples_have_images, bool has_own_collate);

}  // namespace detail

/// Images, all of one size: a batch is a tensor of shape [n, channels, height, width].
template <>
struct Collate<detail::TransformedImage> {
    using Batch = Tensor<float>;  ///< The type of a batch.

    /// Prepares a batch of `count` images, whose size the first one sets.
    static void begin(Batch& batch, std::size_t count) { batch.resize(Shape{count, 0, 0, 0}); }

    /// Throws ArgumentError if the image's size differs from that of the batch's first image.
    static void put(Batch& batch, std::size_t i, const detail::TransformedImage& sample) {
        const Image& image = sample.image;
        const Shape& shape = batch.shape();
        if (i == 0) batch.resize(Shape{shape[0], image.channels, image.height, image.width});
        if (image.channels != shape[1] || image.height != shape[2] || image.width != shape[3])
            detail::throw_other_size(image, shape);
        detail::write_values(sample, batch.data() + i * image.pixels.size());
    }
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/data/image_batch.ipp"
#endif
