/// PowerSGD gradient compression: a gradient is sent as the product of two low-rank matrices, and the error
/// is added to the next gradient (Vogels, Karimireddy, Jaggi: PowerSGD, NeurIPS 2019, algorithms 1 and 2;
/// PyTorch's powerSGD_hook).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/renamed.hpp"
#include "dptk/ddp/comm_hook.hpp"
#include "dptk/ddp/detail/bucket_math.hpp"
#include "dptk/ddp/detail/hook_memory.hpp"
#include "dptk/ddp/detail/low_rank.hpp"
#include "dptk/ddp/hooks/allreduce.hpp"

namespace DPTK_NAMESPACE::hooks {

/// Options of PowerSGD, with PyTorch's names and defaults. They must be equal on all ranks.
struct PowerSGDOptions {
    /// The number of columns of the low-rank matrices. A higher rank is more accurate and costs more.
    std::size_t matrix_approximation_rank = 1;
    /// The first step that compresses gradients. Earlier steps all-reduce them.
    std::size_t start_step = 1000;
    /// A gradient of n x m elements is compressed if n * m > (n + m) * rank * min_compression_rate.
    double min_compression_rate = 2;
    /// Whether the compression error of a gradient is added to the next gradient.
    bool use_error_feedback = true;
    /// Whether a step starts from the last step's matrices instead of random ones.
    bool warm_start = true;
    /// The seed of the random initial matrices.
    std::uint64_t random_seed = 0;
};

/// The state of PowerSGD on one rank, for checkpoints. Each rank has its own errors.
struct PowerSGDState {
    /// The number of completed steps, which is compared with start_step.
    std::size_t steps = 0;
    /// The compression error of each gradient, by parameter index, with as many elements as the gradient.
    std::map<std::size_t, std::vector<float>> errors;
    /// The right one of the two low-rank matrices of each gradient, by parameter index, in row-major order.
    std::map<std::size_t, std::vector<float>> right;
};

/// Compresses gradients by low-rank approximation, like PyTorch's powerSGD_hook. Gradients with padding are
/// sent whole, except matrices with padded_columns().
class PowerSGD final : public CommHook {
  public:
    /// Throws ArgumentError if an option is out of range.
    explicit PowerSGD(PowerSGDOptions options);

    [[nodiscard]] DPTK_INLINE std::string description() const override;

    DPTK_INLINE void reduce(ProcessGroup& group, HookBucket& bucket) override;

    /// Returns the bytes that this rank has passed to collectives so far.
    [[nodiscard]] std::size_t bytes_sent() const noexcept { return bytes_sent_; }

    /// Returns the state for load_state(). Call it between steps. Blocks if gradients are in device memory.
    /// A CUDA graph counts as one step, however often it is launched.
    [[nodiscard]] PowerSGDState state() const;
    /// Restores a state that state() returned, so that this hook continues as the hook that returned the
    /// state would have continued. CUDA graphs that were captured before this call must not be launched
    /// afterwards.
    void load_state(PowerSGDState state);

    /// Returns true only with warm_start, after the first step that compresses: later steps start from the
    /// previous step's matrices, and need no random numbers from the host.
    [[nodiscard]] bool is_capturable() const override { return options_.warm_start && has_compressed_; }

  private:
    /// A gradient that is compressed, in f32.
    struct Matrix {
        std::size_t parameter = 0;
        Buffer gradient;
        Buffer elements;  // rows x columns
        Buffer left;      // rows x rank
        Buffer right;     // columns x rank
        detail::LowRank all;
    };

    struct Layout {
        std::vector<Matrix> matrices;
        /// `lefts` contains the left matrices of all gradients, concatenated, and `rights` the right
        /// matrices.
        Buffer lefts;
        Buffer rights;
        /// Each gradient that is not compressed, with its part of `rest`, where these gradients are
        /// concatenated as f32.
        std::vector<std::pair<Buffer, Buffer>> others;
        Buffer rest;
    };

    void reduce_compressed(ProcessGroup& group, const HookBucket& bucket);

    [[nodiscard]] Layout lay_out(const HookBucket& bucket);

    /// Returns the numbers of rows and columns: the first dimension and the number of elements in each row;
    /// of a matrix with padded_columns(), the number of its columns and their distance. Returns 1 x n for n
    /// elements with fewer than two dimensions, or with other padding.
    [[nodiscard]] static std::pair<std::size_t, std::size_t> as_matrix(const HookBucket::Gradient& gradient);

    [[nodiscard]] bool is_worth_it(std::size_t rows, std::size_t columns) const;

    void sum(ProcessGroup& group, const detail::BucketMath& math, const Buffer& elements);

    /// Sets the matrix to the gradient. With use_error_feedback, then adds the compression error of earlier
    /// steps to the matrix, and keeps this sum in `errors_`.
    void load_gradient(const HookBucket& bucket, const detail::BucketMath& math, const Matrix& matrix);

    /// Writes the approximation to the gradient. With use_error_feedback, also subtracts the approximation,
    /// divided by the number of ranks, from the sum in `errors_`, so that the errors of all ranks add up to
    /// the error of the total.
    void store_gradient(const ProcessGroup& group, const HookBucket& bucket, const detail::BucketMath& math,
                        const Matrix& matrix);

    /// Sets the right matrix to the last step's, or to random numbers that are equal on all ranks, and
    /// orthogonalizes it.
    void init_right(const HookBucket& bucket, const detail::BucketMath& math, const Matrix& matrix);

    /// Returns a random number in [0, 1), by SplitMix64 (Steele, Lea, Flood 2014).
    [[nodiscard]] static double uniform(std::uint64_t& state);

    /// Returns a normally distributed random number, by the Box-Muller transform.
    [[nodiscard]] static float normal(std::uint64_t& state);

    PowerSGDOptions options_;
    std::size_t steps_ = 0;
    bool has_compressed_ = false;  // whether a whole step has been compressed since load_state()
    detail::HookFloats errors_;    // by parameter
    detail::HookFloats right_;     // by parameter
    detail::HookMemory memory_;
    AllReduce all_reduce_;
    std::size_t bytes_sent_ = 0;
};

/// Makes a PowerSGD hook with these options.
[[nodiscard]] std::shared_ptr<PowerSGD> powersgd(PowerSGDOptions options = {});

// Former spellings, until version 0.3.
DPTK_RENAMED_TYPE(PowerSgd, PowerSGD);
DPTK_RENAMED_TYPE(PowerSgdOptions, PowerSGDOptions);

}  // namespace DPTK_NAMESPACE::hooks

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/hooks/powersgd.ipp"
#endif
