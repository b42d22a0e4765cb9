// Training runs that end early, and what is left of them.
#pragma once

#include <dptk/train/callback.hpp>
#include <dptk/train/training_state.hpp>

#include <algorithm>
#include <cstdint>

namespace test {

/// Ends a run after a number of steps.
class StopAfter : public dptk::Callback {
  public:
    explicit StopAfter(std::int64_t step) : step_(step) {}

    void batch_end(dptk::TrainingRun& run) override {
        if (run.status().step == step_) run.stop("enough steps");
    }

  private:
    std::int64_t step_;
};

/// Compares all tensors bit for bit.
inline bool are_equal(const dptk::TrainingState& a, const dptk::TrainingState& b) {
    const auto equal = [](const auto& x, const auto& y) {
        return x.name == y.name && x.shape == y.shape && x.bytes == y.bytes;
    };
    return std::ranges::equal(a.model, b.model, equal) && std::ranges::equal(a.training, b.training, equal) &&
           a.values == b.values;
}

}  // namespace test
