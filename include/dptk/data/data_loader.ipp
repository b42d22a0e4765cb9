#pragma once

#include "dptk/data/data_loader.hpp"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <limits>

#include "dptk/core/detail/parse.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::size_t ranks_on_host() {
    for (const char* name :
         {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"}) {
        const char* const value = std::getenv(name);
        std::size_t ranks = 0;
        if (value != nullptr && parse_number(std::string_view(value), ranks) && ranks > 0) return ranks;
    }
    return 1;
}

DPTK_INLINE std::size_t worker_count(const DataLoaderOptions& options, std::size_t useful) {
    const auto check = [&](std::string_view name, std::size_t value, std::size_t fewest) {
        if (value >= fewest && value <= most_workers) return;
        throw ArgumentError(text("DataLoader: ", name, " must be in [", fewest, ", ", most_workers,
                                 "], found ", static_cast<std::ptrdiff_t>(value)));
    };
    check("prefetch_factor", options.prefetch_factor, 1);
    if (options.workers) {
        check("workers", *options.workers, 0);
        return *options.workers;
    }
    cpu_set_t cores;
    const bool is_known = sched_getaffinity(0, sizeof cores, &cores) == 0;
    const std::size_t usable = is_known ? static_cast<std::size_t>(CPU_COUNT(&cores)) : 1;
    return std::min({std::max<std::size_t>(usable / ranks_on_host(), 1), useful, std::size_t{8}});
}

DPTK_INLINE void rethrow_for_sample(std::size_t index) {
    try {
        throw;
    } catch (const std::exception& error) {
        throw SampleError(text("DataLoader: sample ", index, ": ", error.what()), index);
    } catch (...) {
        throw SampleError(
            text("DataLoader: sample ", index, ": an exception that is not derived from std::exception"),
            index);
    }
}

DPTK_INLINE void throw_canceled() {
    throw Error("the pass has ended");
}

DPTK_INLINE void check_fingerprint(const DataLoaderState& state, std::uint64_t fingerprint) {
    if (state.fingerprint == fingerprint) return;
    throw ArgumentError(text("DataLoader: the state is that of another dataset: it has fingerprint ",
                             state.fingerprint, ", this dataset has ", fingerprint));
}

DPTK_INLINE void throw_pass_under_way(std::string_view call) {
    throw ArgumentError(text("DataLoader: ", call,
                             " was called during a pass over the same loader: leave the "
                             "loop first, or use another loader"));
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE std::string DataLoaderState::to_text() const {
    return detail::text("fingerprint=", fingerprint, ' ', sampler.to_text());
}

DPTK_INLINE DataLoaderState DataLoaderState::from_text(std::string_view line) {
    std::string_view rest = line;
    std::string_view first = detail::next_word(rest);
    constexpr std::string_view name = "fingerprint=";
    DataLoaderState state;
    if (!first.starts_with(name) || !detail::parse_number(first.substr(name.size()), state.fingerprint))
        throw FormatError(
            detail::text("expected the state of a DataLoader with a fingerprint, found \"", line, '"'));
    state.sampler = SamplerState::from_text(rest);
    return state;
}

}  // namespace DPTK_NAMESPACE
