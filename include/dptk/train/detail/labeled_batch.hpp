/// Batches of labeled samples for a Trainer, in the form that a network accepts.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/data/collate.hpp"
#include "dptk/data/data_loader.hpp"
#include "dptk/data/image_batch.hpp"
#include "dptk/data/image_dataset.hpp"
#include "dptk/train/detail/shard_batches.hpp"

namespace DPTK_NAMESPACE::detail {

/// The values of n samples, of shape [n, ...], and their labels.
template <class Value>
struct LabeledBatch {
    Tensor<Value> values;
    std::vector<std::int32_t> labels;
};

/// What a Trainer expects of the samples.
struct SampleFormat {
    Shape input;              ///< The shape of the network's input, without the batch.
    std::size_t classes = 0;  ///< Labels are below this.
    double pixel_scale = 1;   ///< The factor of values of one byte.
};

/// What the network accepts.
template <class Net>
[[nodiscard]] SampleFormat sample_format(const Net& net, double pixel_scale) {
    return {net.input_shape(), element_count(net.output_shape()), pixel_scale};
}

/// Throws ArgumentError for a label that is not a class.
[[noreturn]] void throw_no_class(std::string_view label, std::size_t classes);

/// Returns the text of the error of throw_other_input().
[[nodiscard]] std::string other_input(std::span<const std::size_t> found, const Shape& input);

/// Throws ArgumentError for a range of labels.
[[noreturn]] void throw_not_one_label(std::size_t count);

/// Throws ArgumentError for a sample that the network does not accept.
[[noreturn]] void throw_other_input(std::span<const std::size_t> found, const Shape& input);

/// Returns the values of a sample.
[[nodiscard]] inline std::span<const std::uint8_t> values_of(const LabeledImageRef& sample) noexcept {
    return sample.pixels;
}
template <class Pair>
[[nodiscard]] auto values_of(const Pair& sample) noexcept -> decltype((std::get<0>(sample))) {
    return std::get<0>(sample);
}

[[nodiscard]] inline std::uint8_t label_of(const LabeledImageRef& sample) noexcept {
    return sample.label;
}
template <class Pair>
[[nodiscard]] auto label_of(const Pair& sample) noexcept -> decltype((std::get<1>(sample))) {
    return std::get<1>(sample);
}

/// An integer, and no character.
template <class T>
concept Integer = Number<T> && std::integral<T> && !std::same_as<T, wchar_t> && !std::same_as<T, char8_t> &&
                  !std::same_as<T, char16_t> && !std::same_as<T, char32_t>;

/// A label: an integer, or a range of one integer, as TensorDataset has it.
template <class T>
concept Label = Integer<T> || (NumberRange<T> && Integer<std::ranges::range_value_t<const T>>);

/// Samples that a Trainer accepts: an image or a range of numbers, and a label.
template <class Sample>
concept LabeledSample = requires(const Sample& sample) {
    values_of(sample);
    label_of(sample);
    requires Label<std::remove_cvref_t<decltype(label_of(sample))>>;
    requires std::same_as<std::remove_cvref_t<decltype(values_of(sample))>, TransformedImage> ||
                 NumberRange<std::remove_cvref_t<decltype(values_of(sample))>>;
};

/// The samples of a dataset, with their images transformed.
template <class Dataset>
using LoadedSample = typename DefaultCollation<SampleOf<Dataset>>::Sample;

/// Whether the values of the samples are bytes, such as the pixels of an ImageDataset.
template <class Sample>
inline constexpr bool has_bytes = requires(const Sample& sample) {
    requires std::same_as<std::ranges::range_value_t<decltype(values_of(sample))>, std::uint8_t>;
};

/// A DataLoader's collation of labeled samples. Several threads use it at the same time. `B` is a
/// LabeledBatch, or a tuple of the same.
template <LabeledSample S, class Value, class B = LabeledBatch<Value>>
class LabeledCollation {
  public:
    using Sample = S;
    using Batch = B;

    explicit LabeledCollation(SampleFormat format)
        : format_(std::move(format)), elements_(element_count(format_.input)) {}

    template <class SampleAt>
    void fill(Batch& batch, std::size_t count, SampleAt&& sample_at) const {
        auto& [values, labels] = batch;
        values.resize(count, format_.input);
        labels.resize(count);
        for (std::size_t i = 0; i < count; ++i) {
            const auto& sample = sample_at(i);
            put(values_of(sample), values.data() + i * elements_);
            labels[i] = class_of(label_of(sample));
        }
    }

  private:
    void put(const TransformedImage& sample, Value* out) const {
        const Image& image = sample.image;
        const std::size_t found[] = {image.channels, image.height, image.width};
        if (!std::ranges::equal(found, format_.input)) throw_other_input(found, format_.input);
        if constexpr (std::same_as<Value, float>) {
            write_values(sample, out);
        } else {
            std::vector<float> values(elements_);
            write_values(sample, values.data());
            std::copy(values.begin(), values.end(), out);
        }
    }

    template <NumberRange Range>
    void put(const Range& range, Value* out) const {
        using Element = std::ranges::range_value_t<const Range>;
        const std::span<const Element> values(std::ranges::data(range), std::ranges::size(range));
        if (values.size() != elements_) throw_other_input(std::array{values.size()}, format_.input);
        if constexpr (std::same_as<Element, std::uint8_t> && !std::same_as<Value, std::uint8_t>) {
            const auto scale = static_cast<Value>(format_.pixel_scale);
            for (const std::uint8_t value : values) *out++ = static_cast<Value>(value) * scale;
        } else {
            for (const Element value : values) *out++ = static_cast<Value>(value);
        }
    }

    template <NumberRange Range>
    [[nodiscard]] std::int32_t class_of(const Range& labels) const {
        if (std::ranges::size(labels) != 1) throw_not_one_label(std::ranges::size(labels));
        return class_of(*std::ranges::data(labels));
    }

    template <Integer T>
    [[nodiscard]] std::int32_t class_of(T label) const {
        if (!std::in_range<std::int32_t>(label) || std::cmp_less(label, 0) ||
            !std::cmp_less(label, format_.classes))
            throw_no_class(std::to_string(label), format_.classes);
        return static_cast<std::int32_t>(label);
    }

    SampleFormat format_;
    std::size_t elements_;
};

/// Takes the batches of one pass of a DataLoader one after the other.
template <class Dataset, class Collation>
class BatchReader {
  public:
    BatchReader(const Dataset& dataset, const ShardBatches& indices, const DataLoaderOptions& options,
                Collation collation)
        : loader_(dataset, indices, options, std::move(collation)) {}

    /// Returns the next batch, which is valid until the next call. There must be one.
    [[nodiscard]] const typename Collation::Batch& next() {
        if (place_) {
            ++*place_;
        } else {
            place_.emplace(loader_.begin());
        }
        return **place_;
    }

  private:
    using Loader = DataLoader<Dataset, const ShardBatches, Collation>;

    Loader loader_;
    std::optional<typename Loader::Iterator> place_;
};

/// Returns what is wrong with the shape of the dataset's images; empty if nothing is.
template <class Dataset>
[[nodiscard]] std::string problem_of_images(const Dataset& dataset, const Shape& input) {
    static_assert(LabeledSample<LoadedSample<Dataset>>,
                  "dptk: the samples of a Trainer's dataset are pairs of an Image or a contiguous range "
                  "of numbers, and a label of an integer type; dptk::Map converts other samples");
    if constexpr (requires { Shape{dataset.channels(), dataset.height(), dataset.width()}; }) {
        const Shape found = {dataset.channels(), dataset.height(), dataset.width()};
        if (found != input) return other_input(found, input);
    }
    return "";
}

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/train/detail/labeled_batch.ipp"
#endif
