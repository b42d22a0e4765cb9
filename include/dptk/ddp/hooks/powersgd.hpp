/// PowerSGD: a gradient travels as the product of two thin matrices, and what that loses is added to the next
/// one (Vogels, Karimireddy, Jaggi: PowerSGD, NeurIPS 2019, algorithms 1 and 2; PyTorch's powerSGD_hook).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/local_reduce.hpp"
#include "dptk/ddp/comm_hook.hpp"
#include "dptk/ddp/hooks/allreduce.hpp"

namespace dptk::hooks {

/// Under PyTorch's names, with its defaults. Equal on all ranks.
struct PowerSgdOptions {
    /// Columns of the thin matrices: more cost more, and lose less.
    std::size_t matrix_approximation_rank = 1;
    /// The first step that compresses; those before all-reduce.
    std::size_t start_step = 1000;
    /// A gradient of n x m elements is compressed where n * m > (n + m) * rank * min_compression_rate.
    double min_compression_rate = 2;
    bool use_error_feedback = true;
    /// Begins with the last step's matrices instead of random ones.
    bool warm_start = true;
    std::uint64_t random_seed = 0;
};

/// What a rank must keep to go on later as if it had never stopped: errors are its own.
struct PowerSgdState {
    /// So many have been done, which start_step counts.
    std::size_t steps = 0;
    /// By parameter: what compression has lost of its gradient, an element for each.
    std::map<std::size_t, std::vector<float>> errors;
    /// By parameter: the second matrix, row by row.
    std::map<std::size_t, std::vector<float>> right;
};

class PowerSgd final : public CommHook {
  public:
    /// Throws ArgumentError for options that make no sense.
    explicit PowerSgd(PowerSgdOptions options) : options_(options) {
        if (options.matrix_approximation_rank == 0)
            throw ArgumentError("hooks::PowerSgd: a matrix_approximation_rank of 0");
        if (!(options.min_compression_rate > 0) || !std::isfinite(options.min_compression_rate))
            throw ArgumentError(
                detail::text("hooks::PowerSgd: a min_compression_rate of ", options.min_compression_rate));
    }

    [[nodiscard]] std::string description() const override {
        return detail::text("powersgd of rank ", options_.matrix_approximation_rank, " from step ",
                            options_.start_step, ", min_compression_rate ", options_.min_compression_rate,
                            options_.use_error_feedback ? ", error feedback" : "",
                            options_.warm_start ? ", warm start" : "", ", seed ", options_.random_seed);
    }

    void reduce(ProcessGroup& group, HookBucket& bucket) override {
        if (state_.steps < options_.start_step) {
            bytes_sent_ += bucket.elements.bytes();
            all_reduce_.reduce(group, bucket);
        } else {
            reduce_compressed(group, bucket);
        }
        if (bucket.is_last) ++state_.steps;
    }

    /// Of the collectives so far, on this rank: what it has given to them.
    [[nodiscard]] std::size_t bytes_sent() const noexcept { return bytes_sent_; }

    /// Between steps. A hook that gets another's state goes on as if it were that one.
    [[nodiscard]] const PowerSgdState& state() const noexcept { return state_; }
    void load_state(PowerSgdState state) { state_ = std::move(state); }

  private:
    /// One gradient that is compressed: rows x columns of the bucket's elements, from `first` on.
    struct Matrix {
        std::size_t parameter = 0;
        std::size_t first = 0;
        std::size_t rows = 0;
        std::size_t columns = 0;
        std::size_t rank = 0;
        std::vector<float> elements;
        std::vector<float> left;   // rows x rank
        std::vector<float> right;  // columns x rank
    };

    void reduce_compressed(ProcessGroup& group, HookBucket& bucket) {
        std::vector<float> elements(bucket.elements.count);
        detail::convert(detail::buffer_of(elements), bucket.elements);
        std::vector<Matrix> matrices;
        std::vector<float> rest = split(bucket, elements, matrices);
        sum(group, rest);
        add_errors(matrices);
        compress(group, matrices);
        keep_errors(matrices, group.size());
        join(bucket, elements, matrices, rest);
        detail::convert(bucket.elements, detail::buffer_of(elements));
    }

    /// What goes into compression is kept in the errors' place.
    void add_errors(std::vector<Matrix>& matrices) {
        if (!options_.use_error_feedback) return;
        for (Matrix& matrix : matrices) {
            std::vector<float>& errors = state_.errors[matrix.parameter];
            errors.resize(matrix.elements.size());
            for (std::size_t i = 0; i < errors.size(); ++i)
                matrix.elements[i] = errors[i] += matrix.elements[i];
        }
    }

    /// Without what has come out of it: the ranks' errors sum up to what the sum has lost.
    void keep_errors(const std::vector<Matrix>& matrices, int ranks) {
        if (!options_.use_error_feedback) return;
        for (const Matrix& matrix : matrices) {
            std::vector<float>& errors = state_.errors[matrix.parameter];
            for (std::size_t i = 0; i < errors.size(); ++i)
                errors[i] -= matrix.elements[i] / static_cast<float>(ranks);
        }
    }

    /// The gradients that are worth it become matrices; all other elements are returned.
    [[nodiscard]] std::vector<float> split(const HookBucket& bucket, const std::vector<float>& elements,
                                           std::vector<Matrix>& matrices) const {
        std::vector<float> rest;
        for (const HookBucket::Gradient& gradient : bucket.gradients) {
            const std::size_t first = first_of(bucket, gradient);
            const auto begin = elements.begin() + static_cast<std::ptrdiff_t>(first);
            const auto end = begin + static_cast<std::ptrdiff_t>(gradient.elements.count);
            const auto [rows, columns] = as_matrix(gradient);
            if (is_worth_it(rows, columns)) {
                matrices.push_back({.parameter = gradient.parameter,
                                    .first = first,
                                    .rows = rows,
                                    .columns = columns,
                                    .rank = std::min({options_.matrix_approximation_rank, rows, columns}),
                                    .elements = {begin, end},
                                    .left = {},
                                    .right = {}});
            } else {
                rest.insert(rest.end(), begin, end);
            }
        }
        return rest;
    }

    [[nodiscard]] static std::size_t first_of(const HookBucket& bucket,
                                              const HookBucket::Gradient& gradient) {
        const auto* begin = static_cast<const std::byte*>(bucket.elements.data);
        const auto* here = static_cast<const std::byte*>(gradient.elements.data);
        return static_cast<std::size_t>(here - begin) / bucket.elements.element_size();
    }

    /// The first dimension, and all others together. 1 x n where there are no two, or the memory is padded.
    [[nodiscard]] static std::pair<std::size_t, std::size_t> as_matrix(const HookBucket::Gradient& gradient) {
        const std::size_t count = gradient.elements.count;
        if (gradient.shape.size() < 2 || gradient.shape[0] == 0 || count % gradient.shape[0] != 0)
            return {1, count};
        return {gradient.shape[0], count / gradient.shape[0]};
    }

    [[nodiscard]] bool is_worth_it(std::size_t rows, std::size_t columns) const {
        const auto n = static_cast<double>(rows);
        const auto m = static_cast<double>(columns);
        return rows > 1 && columns > 1 &&
               n * m > (n + m) * static_cast<double>(options_.matrix_approximation_rank) *
                           options_.min_compression_rate;
    }

    void sum(ProcessGroup& group, std::vector<float>& elements) {
        if (elements.empty()) return;
        group.all_reduce(elements);
        bytes_sent_ += elements.size() * sizeof(float);
    }

    void compress(ProcessGroup& group, std::vector<Matrix>& matrices) {
        std::vector<float> all;
        for (Matrix& matrix : matrices) {
            begin_right(matrix);
            multiply(matrix);
            all.insert(all.end(), matrix.left.begin(), matrix.left.end());
        }
        sum(group, all);
        std::size_t taken = 0;
        std::vector<float> others;
        for (Matrix& matrix : matrices) {
            std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(taken), matrix.left.size(),
                        matrix.left.begin());
            taken += matrix.left.size();
            orthogonalize(matrix.left, matrix.rows, matrix.rank);
            multiply_transposed(matrix);
            others.insert(others.end(), matrix.right.begin(), matrix.right.end());
        }
        sum(group, others);
        taken = 0;
        for (Matrix& matrix : matrices) {
            std::copy_n(others.begin() + static_cast<std::ptrdiff_t>(taken), matrix.right.size(),
                        matrix.right.begin());
            taken += matrix.right.size();
            if (options_.warm_start) state_.right[matrix.parameter] = matrix.right;
            expand(matrix);
        }
    }

    /// The last step's, or random numbers, the same on all ranks.
    void begin_right(Matrix& matrix) const {
        const std::size_t count = matrix.columns * matrix.rank;
        const auto found = state_.right.find(matrix.parameter);
        if (options_.warm_start && found != state_.right.end() && found->second.size() == count) {
            matrix.right = found->second;
        } else {
            std::uint64_t state = options_.random_seed * 0x9e3779b97f4a7c15U +
                                  matrix.parameter * 0x2545f491U + state_.steps * 0x632be59bd9b4e019U;
            for (std::size_t i = 0; i < count; ++i) matrix.right.push_back(normal(state));
        }
        orthogonalize(matrix.right, matrix.columns, matrix.rank);
    }

    /// SplitMix64 (Steele, Lea, Flood 2014).
    [[nodiscard]] static double uniform(std::uint64_t& state) {
        std::uint64_t z = (state += 0x9e3779b97f4a7c15U);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
        return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1.0p-53;
    }

    /// By Box and Muller.
    [[nodiscard]] static float normal(std::uint64_t& state) {
        const double radius = std::sqrt(-2 * std::log(1 - uniform(state)));
        return static_cast<float>(radius * std::cos(6.283185307179586 * uniform(state)));
    }

    /// action(element, left, right) for all that are multiplied with each other in elements = left * right^T.
    template <class Action>
    static void for_each_product(Matrix& matrix, Action&& action) {
        for (std::size_t r = 0; r < matrix.rows; ++r) {
            for (std::size_t c = 0; c < matrix.columns; ++c) {
                float& element = matrix.elements[r * matrix.columns + c];
                for (std::size_t k = 0; k < matrix.rank; ++k)
                    action(element, matrix.left[r * matrix.rank + k], matrix.right[c * matrix.rank + k]);
            }
        }
    }

    /// left = elements * right
    static void multiply(Matrix& matrix) {
        matrix.left.assign(matrix.rows * matrix.rank, 0);
        for_each_product(matrix, [](float element, float& left, float right) { left += element * right; });
    }

    /// right = elements^T * left
    static void multiply_transposed(Matrix& matrix) {
        matrix.right.assign(matrix.columns * matrix.rank, 0);
        for_each_product(matrix, [](float element, float left, float& right) { right += element * left; });
    }

    /// elements = left * right^T
    static void expand(Matrix& matrix) {
        std::ranges::fill(matrix.elements, 0.0F);
        for_each_product(matrix, [](float& element, float left, float right) { element += left * right; });
    }

    /// Gram-Schmidt, column by column. A column of zeros stays one.
    static void orthogonalize(std::vector<float>& matrix, std::size_t rows, std::size_t rank) {
        const auto dot = [&](std::size_t a, std::size_t b) {
            double sum = 0;
            for (std::size_t r = 0; r < rows; ++r)
                sum += static_cast<double>(matrix[r * rank + a]) * static_cast<double>(matrix[r * rank + b]);
            return sum;
        };
        for (std::size_t k = 0; k < rank; ++k) {
            for (std::size_t other = 0; other < k; ++other) {
                const auto share = static_cast<float>(dot(k, other));
                for (std::size_t r = 0; r < rows; ++r)
                    matrix[r * rank + k] -= share * matrix[r * rank + other];
            }
            const double length = std::sqrt(dot(k, k));
            if (length == 0) continue;
            for (std::size_t r = 0; r < rows; ++r)
                matrix[r * rank + k] = static_cast<float>(static_cast<double>(matrix[r * rank + k]) / length);
        }
    }

    static void join(const HookBucket& bucket, std::vector<float>& elements,
                     const std::vector<Matrix>& matrices, const std::vector<float>& rest) {
        std::size_t taken = 0;
        for (const HookBucket::Gradient& gradient : bucket.gradients) {
            const std::size_t first = first_of(bucket, gradient);
            const auto to = elements.begin() + static_cast<std::ptrdiff_t>(first);
            const auto matrix = std::ranges::find(matrices, first, &Matrix::first);
            if (matrix != matrices.end() && matrix->parameter == gradient.parameter) {
                std::ranges::copy(matrix->elements, to);
            } else {
                std::copy_n(rest.begin() + static_cast<std::ptrdiff_t>(taken), gradient.elements.count, to);
                taken += gradient.elements.count;
            }
        }
    }

    PowerSgdOptions options_;
    PowerSgdState state_;
    AllReduce all_reduce_;
    std::size_t bytes_sent_ = 0;
};

[[nodiscard]] inline std::shared_ptr<PowerSgd> powersgd(PowerSgdOptions options = {}) {
    return std::make_shared<PowerSgd>(options);
}

}  // namespace dptk::hooks
