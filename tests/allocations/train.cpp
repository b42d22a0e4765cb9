// Tests that the steps of a Trainer and the batches of a DataLoader allocate no heap memory after the first
// ones.
#include <doctest/doctest.h>
#include <dptk/data/readers/idx_images.hpp>
#include <dptk/train.hpp>

#include <algorithm>
#include <cstddef>
#include <string>

#include "allocations/counter.hpp"
#include "support/ranks.hpp"

namespace {

dptk::ImageDataset digits() {
    const std::string prefix = DPTK_EXAMPLE_DATA_DIR "/digits/train";
    return dptk::read_idx_images(prefix + "-images-idx3-ubyte.gz", prefix + "-labels-idx1-ubyte.gz",
                                 {.classes = 10});
}

/// Counts the allocations of some steps of an epoch, all of them with full batches, several times.
class CountSteps : public dptk::Callback {
  public:
    void batch_begin(dptk::TrainingRun& run) override {
        const std::size_t done = run.status().batch;
        if (done < first || done % steps != 0 || attempts_ == most) return;
        run.group().barrier();
        if (attempts_ > 0 || is_counting_) least_ = std::min(least_, test::counted_allocations());
        attempts_ += is_counting_ ? 1 : 0;
        if (attempts_ == most) return;
        run.group().barrier();
        test::count_allocations();
        is_counting_ = true;
        run.group().barrier();
    }

    [[nodiscard]] std::size_t least() const { return least_; }

  private:
    static constexpr std::size_t first = 4;
    static constexpr std::size_t steps = 2;
    static constexpr int most = 9;  // attempts

    std::size_t least_ = static_cast<std::size_t>(-1);
    int attempts_ = 0;
    bool is_counting_ = false;
};

}  // namespace

TEST_CASE("a step of a Trainer allocates nothing") {
    const dptk::ImageDataset samples = digits();
    test::on_ranks([&](dptk::ProcessGroup& group) {
        if (test::allocates_for_started_calls(group)) return;
        for (const dptk::Ready ready : {dptk::Ready::at_synchronize, dptk::Ready::marked}) {
            for (const std::size_t workers : {0U, 2U}) {
                using namespace dptk::nn;
                Network<Reference<float>> net(
                    sequential({1, 8, 8}, {Conv2d{.out_channels = 4, .kernel_size = 3}, BatchNorm2d{}, ReLU{},
                                           Flatten{}, Linear{10}}),
                    1);
                dptk::Trainer trainer(group, net,
                                      {.epochs = 1, .batch_size = 8, .workers = workers, .ready = ready});
                CountSteps& count = trainer.add(CountSteps());
                trainer.train_epoch(samples, 0);
                CAPTURE(workers);
                CHECK(count.least() == 0);
                if (count.least() != 0 && group.rank() == 0) test::print_allocations();
            }
        }
    });
}
