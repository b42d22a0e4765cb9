/// compare_datasets() and compare_samplers(), by which ranks notice that they would train on different data.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "dptk/comm/agreement.hpp"
#include "dptk/control/process/debug.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/data/dataset.hpp"
#include "dptk/data/distributed_sampler.hpp"
#include "dptk/data/fingerprint.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// Returns what must be equal on all ranks, and is known without reading a sample, one line each.
template <SizedDataset Dataset>
[[nodiscard]] std::string dataset_table(const Dataset& dataset) {
    std::string table = text("samples ", static_cast<std::size_t>(dataset.size()));
    if constexpr (requires { std::string_view(*dataset.class_names().begin()); }) {
        std::size_t number = 0;
        for (const auto& name : dataset.class_names()) table += text("\nclass ", number++, " '", name, "'");
    }
    return table;
}

/// Returns the number by which ranks compare a dataset: with DPTK_DEBUG=detail, it depends on all samples of
/// a dataset that has no fingerprint() of its own.
template <SizedDataset Dataset>
[[nodiscard]] std::uint64_t compared_fingerprint(const Dataset& dataset, std::uint64_t fingerprint) {
    if constexpr (IndexableDataset<Dataset> && !HasFingerprint<Dataset>) {
        if (debug_level() != DebugLevel::detail) return fingerprint;
        for (std::size_t i = 0; i < static_cast<std::size_t>(dataset.size()); ++i)
            fingerprint = hash_sample(sample_of(dataset, i), fingerprint);
    }
    return fingerprint;
}

/// Returns the sampler's options and place, one line each.
[[nodiscard]] std::string sampler_table(const DistributedSampler& sampler);

}  // namespace detail

/// Throws MismatchError on all ranks if the ranks' datasets differ in size, in class_names(), if they have
/// that member, or in dataset_fingerprint(); and with DPTK_DEBUG=detail, in any sample. `name` is what the
/// error calls the datasets. A dataset that returns other samples each time has no fingerprint, and is not
/// compared by it. Returns this rank's fingerprint. Collective. Throws Error on all ranks if a sample cannot
/// be read.
template <class Group, SizedDataset Dataset>
std::uint64_t compare_datasets(Group& group, const Dataset& dataset, std::string_view name = "datasets") {
    const std::string table = detail::dataset_table(dataset);
    detail::check_equal_tables(group, name, table);
    std::uint64_t fingerprint = 0;
    const auto compared = [&] {
        return on_all_or_none(group, [&] {
            fingerprint = dataset_fingerprint(dataset);
            return detail::compared_fingerprint(dataset, fingerprint);
        });
    };
    const std::uint64_t own = compared();
    if (detail::all_equal(group.all_gather_value(own))) return fingerprint;
    if (group.all_reduce_value(static_cast<std::uint8_t>(compared() == own ? 1 : 0), ReduceOp::min) != 0)
        detail::check_equal_tables(group, name,
                                   detail::text("other samples, labels or order: fingerprint ", own));
    return fingerprint;
}

/// Throws MismatchError on all ranks if the ranks' samplers differ in options, such as the seed, in the
/// number of samples or replicas, or in the epoch. Collective.
template <class Group>
void compare_samplers(Group& group, const DistributedSampler& sampler) {
    detail::check_equal_tables(group, "samplers", detail::sampler_table(sampler));
}

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/data/compare_ranks.ipp"
#endif
