#pragma once

#include "dptk/ddp/hooks/powersgd.hpp"

#include <algorithm>
#include <cmath>

#include "dptk/core/detail/text.hpp"
#include "dptk/ddp/array_traits.hpp"

namespace DPTK_NAMESPACE::hooks {

DPTK_INLINE PowerSGD::PowerSGD(PowerSGDOptions options) : options_(options) {
    if (options.matrix_approximation_rank == 0)
        throw ArgumentError("hooks::PowerSGD: invalid matrix_approximation_rank 0: expected 1 or more");
    if (!(options.min_compression_rate > 0) || !std::isfinite(options.min_compression_rate))
        throw ArgumentError(detail::text("hooks::PowerSGD: invalid min_compression_rate ",
                                         options.min_compression_rate,
                                         ": expected a positive, finite number"));
}

DPTK_INLINE std::string PowerSGD::description() const {
    return detail::text("powersgd of rank ", options_.matrix_approximation_rank, " from step ",
                        options_.start_step, ", min_compression_rate ", options_.min_compression_rate,
                        options_.use_error_feedback ? ", error feedback" : "",
                        options_.warm_start ? ", warm start" : "", ", seed ", options_.random_seed);
}

DPTK_INLINE void PowerSGD::reduce(ProcessGroup& group, HookBucket& bucket) {
    if (steps_ < options_.start_step || is_complex(bucket.elements.dtype)) {
        bytes_sent_ += bucket.elements.bytes();
        all_reduce_.reduce(group, bucket);
    } else {
        reduce_compressed(group, bucket);
        has_compressed_ = has_compressed_ || bucket.is_last;
    }
    if (bucket.is_last) ++steps_;
}

DPTK_INLINE PowerSGDState PowerSGD::state() const {
    return {steps_, errors_.state(), right_.state()};
}

DPTK_INLINE void PowerSGD::load_state(PowerSGDState state) {
    steps_ = state.steps;
    has_compressed_ = false;
    errors_.load(std::move(state.errors));
    right_.load(std::move(state.right));
}

DPTK_INLINE void PowerSGD::reduce_compressed(ProcessGroup& group, const HookBucket& bucket) {
    const Layout layout = lay_out(bucket);
    const detail::BucketMath math(bucket);
    for (const auto& [gradient, place] : layout.others) math.copy(place, gradient);
    sum(group, math, layout.rest);
    for (const auto& [gradient, place] : layout.others) math.copy(gradient, place);
    for (const Matrix& matrix : layout.matrices) {
        load_gradient(bucket, math, matrix);
        init_right(bucket, math, matrix);
        math.multiply(matrix.all);
    }
    sum(group, math, layout.lefts);
    for (const Matrix& matrix : layout.matrices) {
        math.orthogonalize(matrix.all.left, matrix.all.rows, matrix.all.rank);
        math.multiply_transposed(matrix.all);
    }
    sum(group, math, layout.rights);
    for (const Matrix& matrix : layout.matrices) {
        if (options_.warm_start)
            math.copy(right_.get(bucket, matrix.parameter, matrix.right.count), matrix.right);
        math.expand(matrix.all);
        store_gradient(group, bucket, math, matrix);
    }
}

DPTK_INLINE PowerSGD::Layout PowerSGD::lay_out(const HookBucket& bucket) {
    Layout layout;
    std::size_t elements = 0;
    std::size_t lefts = 0;
    std::size_t rights = 0;
    std::size_t rest = 0;
    for (const HookBucket::Gradient& gradient : bucket.gradients) {
        const auto [rows, columns] = as_matrix(gradient);
        if (!is_worth_it(rows, columns)) {
            layout.others.push_back({gradient.elements, {}});
            rest += gradient.elements.count;
            continue;
        }
        const std::size_t rank = std::min({options_.matrix_approximation_rank, rows, columns});
        Matrix matrix;
        matrix.parameter = gradient.parameter;
        matrix.gradient = gradient.elements;
        matrix.all = {.rows = rows, .columns = columns, .rank = rank};
        layout.matrices.push_back(matrix);
        elements += rows * columns;
        lefts += rows * rank;
        rights += columns * rank;
    }
    Buffer left = memory_.get(bucket, elements + lefts + rights + rest, DType::f32);
    const auto cut = [](Buffer& from, std::size_t count) {
        const Buffer piece = from.slice(0, count);
        from = from.slice(count, from.count - count);
        return piece;
    };
    Buffer all_elements = cut(left, elements);
    Buffer all_lefts = layout.lefts = cut(left, lefts);
    Buffer all_rights = layout.rights = cut(left, rights);
    layout.rest = left;
    for (auto& [gradient, place] : layout.others) place = cut(left, gradient.count);
    for (Matrix& matrix : layout.matrices) {
        detail::LowRank& all = matrix.all;
        matrix.elements = cut(all_elements, all.rows * all.columns);
        matrix.left = cut(all_lefts, all.rows * all.rank);
        matrix.right = cut(all_rights, all.columns * all.rank);
        all.elements = static_cast<float*>(matrix.elements.data);
        all.left = static_cast<float*>(matrix.left.data);
        all.right = static_cast<float*>(matrix.right.data);
    }
    return layout;
}

DPTK_INLINE std::pair<std::size_t, std::size_t> PowerSGD::as_matrix(const HookBucket::Gradient& gradient) {
    const std::size_t count = gradient.elements.count;
    const std::size_t distance = detail::column_distance(gradient.layout);
    if (distance != 0 && count % distance == 0) return {count / distance, distance};
    std::size_t elements = 1;
    for (const std::size_t extent : gradient.shape) elements *= extent;
    // In a matrix of blocks with padding, the product of its factors would not be zero in the padding.
    if (gradient.shape.size() < 2 || elements == 0 || elements != count) return {1, count};
    return {gradient.shape[0], count / gradient.shape[0]};
}

DPTK_INLINE bool PowerSGD::is_worth_it(std::size_t rows, std::size_t columns) const {
    const auto n = static_cast<double>(rows);
    const auto m = static_cast<double>(columns);
    return rows > 1 && columns > 1 &&
           n * m > (n + m) * static_cast<double>(options_.matrix_approximation_rank) *
                       options_.min_compression_rate;
}

DPTK_INLINE void PowerSGD::sum(ProcessGroup& group, const detail::BucketMath& math, const Buffer& elements) {
    if (elements.count == 0) return;
    math.all_reduce(group, elements);
    bytes_sent_ += elements.bytes();
}

DPTK_INLINE void PowerSGD::load_gradient(const HookBucket& bucket, const detail::BucketMath& math,
                                         const Matrix& matrix) {
    math.copy(matrix.elements, matrix.gradient);
    if (!options_.use_error_feedback) return;
    const Buffer errors = errors_.get(bucket, matrix.parameter, matrix.elements.count);
    math.add(errors, matrix.elements, 1);
    math.copy(matrix.elements, errors);
}

DPTK_INLINE void PowerSGD::store_gradient(const ProcessGroup& group, const HookBucket& bucket,
                                          const detail::BucketMath& math, const Matrix& matrix) {
    math.copy(matrix.gradient, matrix.elements);
    if (!options_.use_error_feedback) return;
    const Buffer errors = errors_.get(bucket, matrix.parameter, matrix.elements.count);
    math.add(errors, matrix.elements, -1.0 / group.size());
}

DPTK_INLINE void PowerSGD::init_right(const HookBucket& bucket, const detail::BucketMath& math,
                                      const Matrix& matrix) {
    const std::size_t count = matrix.right.count;
    if (options_.warm_start && right_.has(matrix.parameter, count)) {
        math.copy(matrix.right, right_.get(bucket, matrix.parameter, count));
    } else {
        std::uint64_t state = options_.random_seed * 0x9e3779b97f4a7c15U + matrix.parameter * 0x2545f491U +
                              steps_ * 0x632be59bd9b4e019U;
        std::vector<float> numbers(count);
        for (float& number : numbers) number = normal(state);
        math.write_all(matrix.right, numbers.data());
    }
    math.orthogonalize(matrix.all.right, matrix.all.columns, matrix.all.rank);
}

DPTK_INLINE double PowerSGD::uniform(std::uint64_t& state) {
    std::uint64_t z = (state += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1.0p-53;
}

DPTK_INLINE float PowerSGD::normal(std::uint64_t& state) {
    const double radius = std::sqrt(-2 * std::log(1 - uniform(state)));
    return static_cast<float>(radius * std::cos(6.283185307179586 * uniform(state)));
}

DPTK_INLINE std::shared_ptr<PowerSGD> powersgd(PowerSGDOptions options) {
    return std::make_shared<PowerSGD>(options);
}

}  // namespace DPTK_NAMESPACE::hooks
