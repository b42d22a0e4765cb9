/// dataset_fingerprint(), a number by which a resumed run notices another dataset.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/fnv1a.hpp"
#include "dptk/data/dataset.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// Continues a hash with the bytes of a sample: a number, a string or another contiguous range of numbers, a
/// pair or tuple of these, or a type with a member `fingerprint(hash)`. Other types do not change the hash.
template <class Sample>
[[nodiscard]] std::uint64_t hash_sample(const Sample& sample, std::uint64_t hash) {
    const auto bytes = [](const auto* first, std::size_t count) {
        return std::string_view(reinterpret_cast<const char*>(first), count * sizeof *first);
    };
    if constexpr (requires {
                      { sample.fingerprint(hash) } -> std::same_as<std::uint64_t>;
                  }) {
        return sample.fingerprint(hash);
    } else if constexpr (std::is_arithmetic_v<Sample> || std::is_enum_v<Sample>) {
        return fnv1a(bytes(&sample, 1), hash);
    } else if constexpr (std::ranges::contiguous_range<const Sample>) {
        using Element = std::ranges::range_value_t<const Sample>;
        if constexpr (std::is_arithmetic_v<Element>)
            return fnv1a(bytes(std::ranges::data(sample), std::ranges::size(sample)), hash);
        else
            return hash;
    } else if constexpr (requires { std::tuple_size<Sample>::value; }) {
        return std::apply(
            [&](const auto&... element) {
                ((hash = hash_sample(element, hash)), ...);
                return hash;
            },
            sample);
    } else {
        return hash;
    }
}

/// Whether a dataset has a fingerprint of its own.
template <class Dataset>
concept HasFingerprint = requires(const Dataset& dataset) {
    { dataset.fingerprint() } -> std::same_as<std::uint64_t>;
};

}  // namespace detail

/// Returns a number that is equal for equal datasets, and almost certainly differs for others: a hash of the
/// number of samples, and of the first and the last of them. A dataset with a member
/// `std::uint64_t fingerprint() const` returns its own number instead.
template <SizedDataset Dataset>
[[nodiscard]] std::uint64_t dataset_fingerprint(const Dataset& dataset) {
    if constexpr (detail::HasFingerprint<Dataset>) {
        return dataset.fingerprint();
    } else {
        const auto size = static_cast<std::uint64_t>(dataset.size());
        std::uint64_t hash = detail::hash_sample(size, detail::fnv1a(""));
        if constexpr (IndexableDataset<Dataset>) {
            if (size == 0) return hash;
            hash = detail::hash_sample(sample_of(dataset, 0), hash);
            hash = detail::hash_sample(sample_of(dataset, static_cast<std::size_t>(size - 1)), hash);
        }
        return hash;
    }
}

}  // namespace DPTK_NAMESPACE
