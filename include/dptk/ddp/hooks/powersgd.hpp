/// PowerSGD: a gradient travels as the product of two thin matrices, and what that loses is added to the next
/// one (Vogels, Karimireddy, Jaggi: PowerSGD, NeurIPS 2019, algorithms 1 and 2; PyTorch's powerSGD_hook).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/ddp/comm_hook.hpp"
#include "dptk/ddp/detail/bucket_math.hpp"
#include "dptk/ddp/detail/hook_memory.hpp"
#include "dptk/ddp/detail/low_rank.hpp"
#include "dptk/ddp/hooks/allreduce.hpp"

namespace DPTK_NAMESPACE::hooks {

/// Under PyTorch's names, with its defaults. Equal on all ranks.
struct PowerSgdOptions {
    /// Columns of the thin matrices: more cost more, and lose less.
    std::size_t matrix_approximation_rank = 1;
    /// The first step that compresses; those before all-reduce.
    std::size_t start_step = 1000;
    /// A gradient of n x m elements is compressed where n * m > (n + m) * rank * min_compression_rate.
    double min_compression_rate = 2;
    /// What compression loses of a gradient is added to the next one.
    bool use_error_feedback = true;
    /// Begins with the last step's matrices instead of random ones.
    bool warm_start = true;
    /// Of the first matrices.
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

/// PyTorch's powerSGD_hook.
class PowerSgd final : public CommHook {
  public:
    /// Throws ArgumentError for options that make no sense.
    explicit PowerSgd(PowerSgdOptions options);

    [[nodiscard]] DPTK_INLINE std::string description() const override;

    DPTK_INLINE void reduce(ProcessGroup& group, HookBucket& bucket) override;

    /// Of the collectives so far, on this rank: what it has given to them.
    [[nodiscard]] std::size_t bytes_sent() const noexcept { return bytes_sent_; }

    /// Between steps. A hook that gets another's state goes on as if it were that one. Blocks where gradients
    /// are in device memory. A graph's steps count once, and graphs from before load_state() are not to be
    /// launched any more.
    [[nodiscard]] PowerSgdState state() const;
    /// Goes on from what state() gave.
    void load_state(PowerSgdState state);

    /// From its second compressed step on, which begins with what the first has left.
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
        /// All matrices' in a row.
        Buffer lefts;
        Buffer rights;
        /// Gradients that are not compressed, and their places in f32, in a row as well.
        std::vector<std::pair<Buffer, Buffer>> others;
        Buffer rest;
    };

    void reduce_compressed(ProcessGroup& group, const HookBucket& bucket);

    [[nodiscard]] Layout lay_out(const HookBucket& bucket);

    /// The first dimension, and all others together. 1 x n where there are no two, or the memory is padded.
    [[nodiscard]] static std::pair<std::size_t, std::size_t> as_matrix(const HookBucket::Gradient& gradient);

    [[nodiscard]] bool is_worth_it(std::size_t rows, std::size_t columns) const;

    void sum(ProcessGroup& group, const detail::BucketMath& math, const Buffer& elements);

    /// The gradient and what compression has lost so far, which is kept in the errors' place.
    void take(const HookBucket& bucket, const detail::BucketMath& math, const Matrix& matrix);

    /// The ranks' errors, without what has come out, sum up to what the sum has lost.
    void give(const ProcessGroup& group, const HookBucket& bucket, const detail::BucketMath& math,
              const Matrix& matrix);

    /// The last step's, or random numbers, the same on all ranks.
    void begin_right(const HookBucket& bucket, const detail::BucketMath& math, const Matrix& matrix);

    /// SplitMix64 (Steele, Lea, Flood 2014).
    [[nodiscard]] static double uniform(std::uint64_t& state);

    /// By Box and Muller.
    [[nodiscard]] static float normal(std::uint64_t& state);

    PowerSgdOptions options_;
    std::size_t steps_ = 0;
    bool has_compressed_ = false;  // in a whole step, with what is remembered now
    detail::HookFloats errors_;    // by parameter
    detail::HookFloats right_;     // by parameter
    detail::HookMemory memory_;
    AllReduce all_reduce_;
    std::size_t bytes_sent_ = 0;
};

/// The hook, with these options.
[[nodiscard]] std::shared_ptr<PowerSgd> powersgd(PowerSgdOptions options = {});

}  // namespace DPTK_NAMESPACE::hooks

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/hooks/powersgd.ipp"
#endif
