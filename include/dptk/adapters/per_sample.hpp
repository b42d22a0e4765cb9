/// PerSampleGradients averages per-sample gradients, as differentially private training (DP-SGD) requires.
/// The program keeps the gradients as one block of [samples, elements] for each parameter, and may scale
/// each sample's gradients for clipping. PerSampleGradients computes and stores the means over the samples,
/// which DistributedDataParallel then averages over the ranks.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <functional>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/ddp/parameter_source.hpp"

namespace DPTK_NAMESPACE {

/// A model for DistributedDataParallel: its values are the program's values, and its gradients are the
/// means, of element type T. It must outlive the DistributedDataParallel. In each step, the program computes
/// its blocks, then calls
///
///     means.reduce(blocks, samples);                 // or with a factor for each sample
///     ddp.synchronize(samples);                      // now the mean over all ranks' samples
///     step(values, means[0], means[1], ...);
///
/// Add noise after synchronize(), the same on all ranks.
template <std::floating_point T>
class PerSampleGradients {
  public:
    /// Accepts the same `values` as DistributedDataParallel, of any floating-point types. Throws
    /// ArgumentError if they are not in host memory.
    template <class Values>
        requires(!std::same_as<std::remove_cvref_t<Values>, PerSampleGradients>)
    explicit PerSampleGradients(Values&& values) : visit_(detail::visitor_of(std::forward<Values>(values))) {
        ParameterSink sink;
        visit_(sink);
        detail::require_host_memory(sink.parameters(), "PerSampleGradients");
        for (const ParameterRef& parameter : sink.parameters()) {
            names_.push_back(parameter.name);
            means_.emplace_back(parameter.count);
        }
    }

    /// Returns, for each sample, the Euclidean norm of its gradients of all parameters together. `blocks`
    /// is a range of contiguous ranges, one for each parameter, with `samples` times as many elements as
    /// the parameter. Throws ArgumentError for other blocks.
    template <std::ranges::forward_range Blocks>
    [[nodiscard]] std::vector<double> norms(const Blocks& blocks, std::size_t samples) const {
        std::vector<double> squares(samples);
        visit(blocks, samples, [&](std::size_t p, std::size_t sample, std::span<const T> gradient) {
            static_cast<void>(p);
            for (const T g : gradient) squares[sample] += static_cast<double>(g) * static_cast<double>(g);
        });
        for (double& square : squares) square = std::sqrt(square);
        return squares;
    }

    /// Computes the means over the samples; zeros if there are no samples.
    template <std::ranges::forward_range Blocks>
    void reduce(const Blocks& blocks, std::size_t samples) {
        reduce(blocks, samples, std::vector<T>(samples, T{1}));
    }

    /// Computes the means with each sample's gradients multiplied by its factor: a factor of min(1, C /
    /// norm) clips them to norm C. Throws ArgumentError if the numbers of factors and samples differ.
    template <std::ranges::forward_range Blocks>
    void reduce(const Blocks& blocks, std::size_t samples, std::span<const T> factors) {
        if (factors.size() != samples)
            throw ArgumentError(
                detail::text("expected ", samples, " factors, one per sample, got ", factors.size()));
        sums_.clear();
        for (const std::vector<T>& mean : means_) sums_.emplace_back(mean.size());
        visit(blocks, samples, [&](std::size_t p, std::size_t sample, std::span<const T> gradient) {
            const double factor = static_cast<double>(factors[sample]) / static_cast<double>(samples);
            for (std::size_t e = 0; e < gradient.size(); ++e)
                sums_[p][e] += factor * static_cast<double>(gradient[e]);
        });
        for (std::size_t p = 0; p < means_.size(); ++p) {
            for (std::size_t e = 0; e < means_[p].size(); ++e) means_[p][e] = static_cast<T>(sums_[p][e]);
        }
    }

    /// Returns the mean of parameter i's gradients: this rank's mean, and after synchronize() that of all
    /// ranks. The address does not change during the lifetime of this object.
    [[nodiscard]] std::span<T> operator[](std::size_t i) { return means_[i]; }
    /// Returns the number of parameters.
    [[nodiscard]] std::size_t size() const noexcept { return means_.size(); }

    /// Passes the program's current values to the sink, each with its mean as its gradient.
    void for_each_parameter(ParameterSink& sink) {
        ParameterSink values;
        visit_(values);
        std::size_t index = 0;
        for (ParameterRef& parameter : values.parameters()) {
            if (index < means_.size() && parameter.count == means_[index].size()) {
                parameter.gradient = means_[index].data();
                parameter.gradient_dtype = dtype_of<T>;
            }
            ++index;
            sink(std::move(parameter));
        }
    }

  private:
    /// Calls fn(parameter, sample, gradient) for each parameter and sample.
    template <class Blocks, class Fn>
    void visit(const Blocks& blocks, std::size_t samples, Fn&& fn) const {
        std::size_t p = 0;
        for (const auto& block : blocks) {
            const std::span<const T> all(block);
            if (p == means_.size())
                throw ArgumentError(detail::text("expected ", p, " blocks, one per parameter, got more"));
            const std::size_t count = means_[p].size();
            if (all.size() != samples * count)
                throw ArgumentError(detail::text("the block of parameter ", names_[p], ": expected ", samples,
                                                 " x ", count, " elements, got ", all.size()));
            for (std::size_t sample = 0; sample < samples; ++sample)
                fn(p, sample, all.subspan(sample * count, count));
            ++p;
        }
        if (p != means_.size())
            throw ArgumentError(
                detail::text("expected ", means_.size(), " blocks, one per parameter, got ", p));
    }

    std::function<void(ParameterSink&)> visit_;
    std::vector<std::string> names_;
    std::vector<std::vector<T>> means_;
    std::vector<std::vector<double>> sums_;
};

}  // namespace DPTK_NAMESPACE
