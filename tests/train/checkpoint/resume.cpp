// Tests that runs continue from checkpoints as if they had never been interrupted.
#include <doctest/doctest.h>
#include <dptk/core/detail/errno_text.hpp>
#include <dptk/ddp/hooks/compress.hpp>
#include <dptk/train/callbacks/early_stopping.hpp>
#include <dptk/train/checkpoint/checkpoint.hpp>
#include <dptk/train/detail/folder_lock.hpp>
#include <dptk/train/stop_signals.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "model.hpp"
#include "support/agreed_errors.hpp"
#include "support/failing_call.hpp"
#include "support/file_size_limit.hpp"
#include "support/interrupted_run.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"

namespace {

using dptk::ProcessGroup;
using dptk::TrainingRun;
using dptk::TrainingState;
using test::are_equal;
using test::Backend;
using test::StopAfter;

/// What a run leaves behind.
struct Outcome {
    TrainingState state;
    dptk::TrainingStatus status;
    std::vector<std::string> remarks;
};

constexpr int epochs = 3;

/// Trains, or continues, with a checkpoint in `folder`; ends early after `last_step` steps, if it is not 0.
Outcome train(ProcessGroup& group, const std::filesystem::path& folder, std::int64_t last_step,
              dptk::CheckpointOptions checkpoint = {},
              const dptk::TrainerOptions& options = test::small_options(epochs)) {
    dptk::nn::Network<Backend> net = test::small_convnet();
    dptk::Trainer trainer(group, net, options);
    test::add_callbacks(trainer, epochs);
    if (last_step > 0) trainer.add(StopAfter(last_step));
    Outcome outcome;
    checkpoint.remark = [&](const std::string& text) { outcome.remarks.push_back(text); };
    trainer.add(dptk::Checkpoint(folder, checkpoint));
    const dptk::ImageDataset samples = test::digits("train"), tested = test::digits("test");
    outcome.status = trainer.fit(samples, tested);
    outcome.state = trainer.state();
    for (std::size_t i = 0; i < outcome.state.sharded.described.size(); ++i)
        outcome.state.training.push_back(outcome.state.sharded.fetch(i));  // without elements on other ranks
    return outcome;
}

/// Returns the elements of all of the model's tensors.
std::vector<float> model_values(const TrainingState& state) {
    std::vector<float> all;
    for (const dptk::StateTensor& tensor : state.model) {
        if (tensor.dtype != dptk::DType::f32) continue;
        const std::vector<float> values = tensor.values<float>();
        all.insert(all.end(), values.begin(), values.end());
    }
    return all;
}

bool are_close(const std::vector<float>& a, const std::vector<float>& b) {
    return std::ranges::equal(a, b, [](float x, float y) { return std::abs(x - y) < 1e-4F; });
}

}  // namespace

TEST_CASE("an interrupted run ends with the same bits as one that was not") {
    for (const int ranks : {1, 2, 3}) {
        CAPTURE(ranks);
        const TemporaryFolder folder;
        dptk::launch_threads(ranks, [&](ProcessGroup& group) {
            const Outcome whole = train(group, folder / "whole", 0);
            CHECK(whole.status.stop_reason.empty());
            CHECK(whole.status.epoch == epochs);
            CHECK(whole.status.test.accuracy > 0.7);
            const auto per_epoch = whole.status.step / epochs;
            for (const std::int64_t last : {std::int64_t{1}, per_epoch - 1, per_epoch, per_epoch + 5}) {
                CAPTURE(last);
                const auto own = folder / ("stopped-" + std::to_string(last));
                const Outcome stopped = train(group, own, last);
                CHECK(stopped.status.stop_reason == "enough steps");
                CHECK(stopped.status.step == last);
                const Outcome rest = train(group, own, 0, {.in_background = true});
                CHECK(are_equal(rest.state, whole.state));
                CHECK(rest.status.test.loss == whole.status.test.loss);
                CHECK(rest.status.training.loss ==
                      doctest::Approx(whole.status.training.loss).epsilon(1e-12));
                const Outcome again = train(group, own, 0);  // there is nothing left to do
                CHECK(are_equal(again.state, whole.state));
                CHECK(again.status.test.accuracy == whole.status.test.accuracy);
            }
        });
    }
}

TEST_CASE("dropout continues alike on ranks that had no samples in a step") {
    const dptk::ImageDataset images = test::digits("test");
    const std::array<std::size_t, 3> shape{33, 8, 8};
    const dptk::ImageDataset samples({images.pixels().begin(), images.pixels().begin() + 33 * 64}, shape,
                                     {images.labels().begin(), images.labels().begin() + 33},
                                     {.classes = 10});
    const TemporaryFolder folder;
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        const auto train = [&](const std::filesystem::path& own, std::int64_t last_step) {
            dptk::nn::Network<Backend> net = test::small_convnet();
            dptk::Trainer trainer(group, net, test::small_options(epochs));
            if (last_step > 0) trainer.add(StopAfter(last_step));
            trainer.add(dptk::Checkpoint(own));
            trainer.fit(samples, samples);
            return trainer.state();
        };
        const TrainingState whole = train(folder / "whole", 0);
        train(folder / "stopped", 3);  // rank 1 had no samples in the second step
        CHECK(are_equal(train(folder / "stopped", 0), whole));
    });
}

TEST_CASE("a run with frozen parameters, rates by pattern and micro-batches continues with the same bits") {
    const TemporaryFolder folder;
    dptk::TrainerOptions options = test::small_options(epochs);
    options.batch_size = 8;
    options.accumulate = 2;
    options.freeze = {"0.*", "1.*"};
    options.lr_factors = {{"5.bias", 3}};
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        const Outcome whole = train(group, folder / "whole", 0, {}, options);
        CHECK(whole.status.test.accuracy > 0.3);  // chance is 0.1
        CHECK(TrainingState::find(whole.state.training, "optimizer.0.0.weight") == nullptr);
        train(group, folder / "stopped", 12, {}, options);
        const Outcome rest = train(group, folder / "stopped", 0, {}, options);
        CHECK(are_equal(rest.state, whole.state));
        for (const std::vector<std::string>& other : {std::vector<std::string>{}, {"0.*"}}) {
            dptk::TrainerOptions changed = options;
            changed.freeze = other;
            std::string message;
            CHECK(test::throws<dptk::Error>(
                message, [&] { train(group, folder / "whole", 0, {}, changed); }, test::Agreed::yes));
            CHECK(test::contains(message, "it was made with other frozen parameters"));
        }
    });
}

TEST_CASE("a run with a sharded optimizer continues with the same bits, and without one") {
    for (const dptk::OptimizerKind kind : {dptk::OptimizerKind::sgd, dptk::OptimizerKind::adamw}) {
        dptk::TrainerOptions plain = test::small_options(epochs);
        plain.optimizer = kind;
        plain.lr_factors = {{"5.bias", 3}};
        plain.adam.lr = 0.02;
        if (kind == dptk::OptimizerKind::adamw) {
            plain.freeze = {"1.*"};
            plain.ready = dptk::Ready::marked;
            plain.batch_size = 8;
            plain.accumulate = 2;
        }
        dptk::TrainerOptions sharded = plain;
        sharded.shard_optimizer = true;
        const TemporaryFolder folder;
        std::vector<float> expected;
        for (const int ranks : {1, 2, 3}) {
            CAPTURE(ranks);
            dptk::launch_threads(ranks, [&](ProcessGroup& group) {
                const auto own = folder / std::to_string(ranks);
                const Outcome whole = train(group, own / "whole", 0, {}, sharded);
                CHECK(whole.status.test.accuracy > 0.5);  // chance is 0.1
                CHECK(are_close(model_values(whole.state),
                                model_values(train(group, own / "plain", 0, {}, plain).state)));
                train(group, own / "stopped", 9, {}, sharded);
                const Outcome rest = train(group, own / "stopped", 0, {.in_background = true}, sharded);
                CHECK(are_equal(rest.state, whole.state));
                if (ranks == 2 && group.rank() == 0) expected = model_values(whole.state);
            });
        }
        // The state is saved by two ranks, and continued by other numbers, with a sharded optimizer or not.
        for (const bool was_sharded : {false, true}) {
            CAPTURE(was_sharded);
            const auto saved = folder / (was_sharded ? "sharded" : "not-sharded");
            dptk::launch_threads(
                2, [&](ProcessGroup& group) { train(group, saved, 9, {}, was_sharded ? sharded : plain); });
            CHECK(std::filesystem::exists(saved / "step-00000009/optimizer.safetensors") == was_sharded);
            std::vector<std::vector<float>> results;
            for (const int ranks : {2, 3}) {
                for (const bool is_sharded : {false, true}) {
                    const auto own = folder / (saved.filename().string() + std::to_string(results.size()));
                    std::filesystem::copy(saved, own, std::filesystem::copy_options::recursive);
                    dptk::launch_threads(ranks, [&](ProcessGroup& group) {
                        const Outcome rest = train(group, own, 0, {}, is_sharded ? sharded : plain);
                        if (group.rank() == 0) results.push_back(model_values(rest.state));
                    });
                }
            }
            CHECK(are_close(results[0], expected));
            CHECK(are_close(results[1], expected));
            CHECK(are_close(results[3], results[2]));
        }
    }
}

TEST_CASE("a sharded optimizer's state that cannot be written or read is an error on all ranks") {
    const TemporaryFolder folder;
    dptk::TrainerOptions options = test::small_options(epochs);
    options.optimizer = dptk::OptimizerKind::adam;
    options.shard_optimizer = true;
    dptk::launch_threads(2, [&](ProcessGroup& group) { train(group, folder / "run", 3, {}, options); });
    {
        const test::FileSizeLimit limit(5000);  // the model has 2.8 kB, the optimizer's state 5.6 kB
        dptk::launch_threads(2, [&](ProcessGroup& group) {
            std::string message;
            CHECK(test::throws<dptk::Error>(
                message, [&] { train(group, folder / "run", 5, {}, options); }, test::Agreed::yes));
            CHECK(test::contains(message, "optimizer.safetensors: cannot be written"));
        });
    }
    CHECK(dptk::CheckpointFolder(folder / "run").steps() == std::vector<std::int64_t>{3});
    // The file becomes shorter after it was found to be whole. The newer checkpoint is damaged, which is said
    // then.
    dptk::launch_threads(2, [&](ProcessGroup& group) { train(group, folder / "run", 4, {}, options); });
    std::filesystem::resize_file(folder / "run/step-00000004/model.safetensors", 100);
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        dptk::nn::Network<Backend> net = test::small_convnet();
        dptk::Trainer trainer(group, net, options);
        test::add_callbacks(trainer, epochs);
        trainer.add(dptk::Checkpoint(folder / "run", {.remark = [&](const std::string&) {
                                         std::filesystem::resize_file(
                                             folder / "run/step-00000003/optimizer.safetensors", 2000);
                                     }}));
        std::string message;
        CHECK(test::throws<dptk::Error>(
            message, [&] { trainer.fit(test::digits("train"), test::digits("test")); }, test::Agreed::yes));
        CHECK(test::contains(message, "the file has become shorter"));
    });
    // Only one rank has another dataset.
    dptk::launch_threads(2, [&](ProcessGroup& group) { train(group, folder / "other", 3, {}, options); });
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        dptk::nn::Network<Backend> net = test::small_convnet();
        dptk::Trainer trainer(group, net, options);
        test::add_callbacks(trainer, epochs);
        trainer.add(dptk::Checkpoint(folder / "other"));
        const dptk::ImageDataset samples = test::digits(group.rank() == 1 ? "test" : "train");
        std::string message;
        CHECK(test::throws<dptk::Error>(
            message, [&] { trainer.fit(samples, samples); }, test::Agreed::yes));
        CHECK(test::contains(message, "the ranks' training datasets differ: rank 1 has samples"));
    });
}

TEST_CASE("what needs the averaged gradients, and a state that only rank 0 has, are errors when sharded") {
    /// Continues from a state of this run.
    struct Restore : dptk::Callback {
        void epoch_end(TrainingRun& run) override { run.restore(run.state()); }
    };
    const TemporaryFolder folder;
    dptk::TrainerOptions options = test::small_options(epochs);
    options.shard_optimizer = true;
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        dptk::nn::Network<Backend> net = test::small_convnet();
        dptk::Trainer trainer(group, net, options);
        trainer.add(Restore());
        std::string message;
        CHECK(test::throws<dptk::ArgumentError>(
            message, [&] { trainer.fit(test::digits("test"), test::digits("test")); }));
        CHECK(test::contains(message, "can only be restored after Checkpoint has read it"));
    });
    for (const bool has_hook : {true, false}) {
        dptk::TrainerOptions both = options;
        both.reproducible_shards = has_hook ? 0 : 2;
        if (has_hook) both.comm_hook = dptk::hooks::fp16_compress();
        dptk::launch_threads(2, [&](ProcessGroup& group) {
            std::string message;
            CHECK(test::throws<dptk::ArgumentError>(
                message, [&] { train(group, folder / "other", 1, {}, both); }, test::Agreed::yes));
            CHECK(test::contains(message, has_hook ? "shard_optimizer and comm_hook cannot be combined"
                                                   : "shard_optimizer and reproducible_shards"));
        });
    }
    struct Gradients : dptk::Callback {
        void gradients(TrainingRun& /*run*/) override {}
    };
    dptk::launch_threads(1, [&](ProcessGroup& group) {
        dptk::nn::Network<Backend> net = test::small_convnet();
        dptk::Trainer trainer(group, net, options);
        CHECK_THROWS_WITH_AS(trainer.add(Gradients()),
                             "Trainer: a callback with gradients() cannot be combined with shard_optimizer",
                             dptk::ArgumentError);
    });
}

TEST_CASE("another number of ranks trains each sample once, with the same state") {
    struct Counted {
        const dptk::ImageDataset& images;
        std::vector<std::atomic<int>>& counts;

        std::size_t size() const { return images.size(); }
        std::pair<dptk::Image, std::int32_t> operator[](std::size_t i) const {
            ++counts[i];
            const auto pixels = images.pixels().subspan(i * 64, 64);
            return {{.width = 8, .height = 8, .channels = 1, .pixels = {pixels.begin(), pixels.end()}},
                    images.labels()[i]};
        }
        std::uint64_t fingerprint() const { return 1; }
    };
    const dptk::ImageDataset images = test::digits("train"), tested = test::digits("test");
    std::vector<std::atomic<int>> counts(images.size());
    const TemporaryFolder folder;
    std::int64_t last = 0;
    for (const int ranks : {2, 4, 3}) {
        last += 10;
        dptk::launch_threads(ranks, [&](ProcessGroup& group) {
            dptk::nn::Network<Backend> net = test::small_convnet();
            dptk::TrainerOptions options = test::small_options(1);
            options.workers = 0;
            dptk::Trainer trainer(group, net, options);
            test::add_callbacks(trainer, 1);
            if (ranks != 3) trainer.add(StopAfter(last));
            trainer.add(dptk::Checkpoint(folder / "run"));
            const dptk::TrainingStatus status = trainer.fit(Counted{images, counts}, tested);
            if (ranks != 3) return;
            CHECK(status.training.samples == images.size());
            CHECK(status.training.loss < 2);
        });
    }
    for (const std::atomic<int>& count : counts) CHECK(count == 1);
}

TEST_CASE("a damaged checkpoint is passed over") {
    const TemporaryFolder folder;
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        const Outcome first = train(group, folder / "run", 7);
        const Outcome second = train(group, folder / "run", 9);
        if (group.rank() == 0)
            std::filesystem::resize_file(folder / "run/step-00000009/model.safetensors", 100);
        group.barrier();
        const Outcome third = train(group, folder / "run", 9);
        CHECK(are_equal(third.state, second.state));
        if (group.rank() != 0) return;
        REQUIRE(third.remarks.size() == 2);
        CHECK(third.remarks[0].starts_with("the checkpoint of step 9 is not used: "));
        CHECK(test::contains(third.remarks[0], "model.safetensors: expected "));
        CHECK(third.remarks[0].ends_with(" bytes, found 100"));
        CHECK(third.remarks[1] == "continuing from the checkpoint of step 7, after 0 epochs");
    });
}

TEST_CASE("a checkpoint of another run, and one that cannot be written, are errors on all ranks") {
    const TemporaryFolder folder;
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        train(group, folder / "run", 3);
        dptk::TrainerOptions options = test::small_options(epochs);
        const auto continues = [&](dptk::nn::Network<Backend> net, const dptk::ImageDataset& samples) {
            std::string message;
            dptk::Trainer trainer(group, net, options);
            trainer.add(dptk::Checkpoint(folder / "run"));
            CHECK(test::throws<dptk::Error>(
                message, [&] { trainer.fit(samples, samples); }, test::Agreed::yes));
            return message;
        };
        const dptk::ImageDataset samples = test::digits("train");
        CHECK(test::contains(continues(test::small_convnet(), test::digits("test")),
                             "it was made with another training dataset"));
        CHECK(test::contains(
            continues({dptk::nn::sequential({1, 8, 8}, {dptk::nn::Flatten{}, dptk::nn::Linear{10}}), 1},
                      samples),
            "it has 6 parameters, the model 2: continue with the model of that run, or use another folder"));
        options.sgd.momentum = 0;
        CHECK(test::contains(continues(test::small_convnet(), samples),
                             "it was made with another optimizer: sgd with momentum, this run has sgd"));
    });
    // A file in the place of the folder.
    folder.write("file", "");
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        std::string message;
        CHECK(test::throws<dptk::Error>(
            message, [&] { train(group, folder / "file", 3); }, test::Agreed::yes));
        CHECK(test::contains(message, (folder / "file").string()));
    });
    // A full disk, with and without a background thread.
    for (const bool in_background : {false, true}) {
        const test::FileSizeLimit limit(1000);
        dptk::launch_threads(2, [&](ProcessGroup& group) {
            std::string message;
            CHECK(test::throws<dptk::Error>(
                message, [&] { train(group, folder / "run", 5, {.in_background = in_background}); },
                test::Agreed::yes));
            CHECK(test::contains(message, "model.safetensors"));
        });
        CHECK(dptk::CheckpointFolder(folder / "run").steps() == std::vector<std::int64_t>{3});
    }
}

TEST_CASE(
    "a checkpoint that the system cannot read is an error on all ranks, and the folder remains as it was") {
    const TemporaryFolder folder;
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        train(group, folder / "run", 3);
        train(group, folder / "run", 5);
    });
    const auto before = test::files_in(folder / "run");
    for (const char* function : {"open", "read"}) {
        for (const auto& [error, number] : test::system_errors) {
            const test::FailingCall failing(function, error, "step-00000005/model.safetensors");
            dptk::launch_threads(2, [&](ProcessGroup& group) {
                std::string message;
                CHECK(test::throws<dptk::Error>(
                    message, [&] { train(group, folder / "run", 9); }, test::Agreed::yes));
                CHECK(test::contains(message, "step-00000005/model.safetensors: "));
                CHECK(test::contains(message, dptk::detail::errno_text(number)));
            });
        }
    }
    CHECK(test::files_in(folder / "run") == before);
}

TEST_CASE("a log that the system cannot read is an error, and remains as it was") {
    const TemporaryFolder folder;
    const std::string log = folder / "log.csv";
    const auto train_until = [&](int epochs) {
        dptk::launch_threads(1, [&](ProcessGroup& group) {
            dptk::nn::Network<Backend> net = test::small_convnet();
            dptk::Trainer trainer(group, net, test::small_options(epochs));
            trainer.add(dptk::Checkpoint(folder / "run"));
            trainer.add(dptk::MetricsLog(log));
            trainer.fit(test::digits("test"), test::digits("test"));
        });
    };
    train_until(1);
    const auto before = test::files_in(folder / "");
    {
        const test::FailingCall failing("read", "EIO", log);
        CHECK_THROWS_WITH_AS(train_until(2), doctest::Contains("log.csv: byte 0: "), dptk::Error);
    }
    CHECK(test::files_in(folder / "").at(log) == before.at(log));
}

TEST_CASE("a signal to one rank ends the run on all ranks at the same step") {
    enum class Moment { first_step, test, save };
    /// Sends itself a signal once.
    struct Signal : dptk::Callback {
        Moment moment;
        explicit Signal(Moment moment_) : moment(moment_) {}
        void batch_end(TrainingRun& run) override { send(run, Moment::first_step); }
        void test_batch(TrainingRun& run) override { send(run, Moment::test); }
        void save(TrainingRun& run, TrainingState& /*state*/) override { send(run, Moment::save); }
        void send(TrainingRun& run, Moment now) const {
            const bool is_first = dptk::StopSignals::received() == 0;
            if (now == moment && is_first && run.group().rank() == 0) raise(SIGUSR1);
        }
    };
    for (const Moment moment : {Moment::first_step, Moment::test, Moment::save}) {
        const TemporaryFolder folder;
        const int status = test::exit_status_of_child([&] {
            const dptk::StopSignals signals;
            std::atomic<int> wrong = 0;
            dptk::launch_threads(2, [&](ProcessGroup& group) {
                dptk::nn::Network<Backend> net = test::small_convnet();
                dptk::Trainer trainer(group, net, test::small_options(epochs));
                test::add_callbacks(trainer, epochs);
                trainer.add(Signal(moment));
                trainer.add(dptk::StopOnSignal());
                trainer.add(dptk::Checkpoint(folder / "run"));
                const dptk::TrainingStatus stopped = trainer.fit(test::digits("train"), test::digits("test"));
                if (stopped.stop_reason != "received SIGUSR1") ++wrong;
                const auto epoch = static_cast<std::int64_t>(stopped.batches);
                const std::int64_t last = moment == Moment::first_step ? 1
                                          : moment == Moment::test     ? epoch
                                                                       : epoch + 1;
                if (stopped.step != last) ++wrong;
            });
            return wrong.load();
        });
        CHECK(status == 0);
        dptk::launch_threads(2, [&](ProcessGroup& group) {
            const Outcome whole = train(group, folder / "whole", 0);
            CHECK(are_equal(train(group, folder / "run", 0).state, whole.state));
        });
    }
}

TEST_CASE("a signal before the program looks for one, a second one, and the end of the grace time end it") {
    // With nothing to be saved, the first signal ends the process.
    CHECK(test::exit_status_of_child([] {
              const dptk::StopSignals signals;
              std::raise(SIGTERM);
              return 0;
          }) == -1);
    CHECK(test::exit_status_of_child([] {
              const dptk::StopSignals signals;
              dptk::ProcessGroup group = dptk::init_process_group();
              dptk::nn::Network<Backend> net = test::small_convnet();
              dptk::Trainer trainer(group, net, test::small_options(1));
              trainer.add(dptk::StopOnSignal());
              std::raise(SIGINT);
              return 0;
          }) == -1);
    // A second signal ends the process, also if it is another one than the first.
    CHECK(test::exit_status_of_child([] {
              const dptk::StopSignals signals;
              if (dptk::StopSignals::received() != 0) return 2;
              std::raise(SIGTERM);
              if (dptk::StopSignals::received() != SIGTERM) return 2;
              std::raise(SIGINT);
              return 0;
          }) == -1);
#ifndef __SANITIZE_THREAD__  // delivers no signal to a child while it sleeps, if the parent had other threads
    // So does the end of the grace time.
    CHECK(test::exit_status_of_child([] {
              const dptk::StopSignals signals;
              dptk::StopSignals::set_grace_time(std::chrono::seconds(1));
              if (dptk::StopSignals::received() != 0) return 2;
              std::raise(SIGTERM);
              for (int i = 0; i < 200; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
              return 0;
          }) == -1);
#endif
}

TEST_CASE("a run continues from the checkpoint that the options name") {
    const TemporaryFolder folder;
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        const Outcome whole = train(group, folder / "whole", 0);
        train(group, folder / "first", 4);
        train(group, folder / "first", 9);
        const auto continue_in = [&](const char* own, const char* from) {
            return train(group, folder / own, 0, {.resume_from = folder / from});
        };
        CHECK(are_equal(continue_in("other", "first/step-00000004").state, whole.state));
        std::string message;
        CHECK(test::throws<dptk::Error>(
            message, [&] { continue_in("first", "first/step-00000004"); }, test::Agreed::yes));
        CHECK(test::contains(message, "has a checkpoint of step 9, later than "));
        CHECK(test::throws<dptk::Error>(
            message, [&] { continue_in("other", "first/best"); }, test::Agreed::yes));
        CHECK(test::contains(message, "first/best/state.json"));
    });
}

TEST_CASE("a run does not replace checkpoints of another one, or those that cannot be used") {
    const TemporaryFolder folder;
    std::map<std::string, std::string> before;
    const auto is_refused = [&](ProcessGroup& group, const char* text,
                                const dptk::CheckpointOptions& options) {
        group.barrier();
        if (group.rank() == 0) before = test::files_in(folder / "run");
        std::string message;
        CHECK(test::throws<dptk::Error>(
            message, [&] { train(group, folder / "run", 2, options); }, test::Agreed::yes));
        CAPTURE(message);
        CHECK(test::contains(message, (folder / "run").string() + text));
        if (group.rank() == 0) CHECK(test::files_in(folder / "run") == before);
    };
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        train(group, folder / "other", 4);
        train(group, folder / "run", 3);
        is_refused(group,
                   ": has a checkpoint of step 3, of another run: use another folder for the run that "
                   "continues from ",
                   {.resume_from = folder / "other/step-00000004"});
        group.barrier();
        if (group.rank() == 0) std::filesystem::remove(folder / "run/step-00000003/model.safetensors");
        is_refused(group, ": has checkpoints, but none that can be used: use another folder", {});
        group.barrier();
        if (group.rank() == 0) std::filesystem::rename(folder / "run/step-00000003", folder / "run/best");
        is_refused(group, ": has checkpoints, but none that can be used: use another folder", {});
        is_refused(group, ": has the checkpoint `best`, of an earlier run", {.resume = false});
        is_refused(group, ": has the checkpoint `best`, of another run: ",
                   {.resume_from = folder / "other/step-00000004"});
    });
}

TEST_CASE("a second run in a folder is refused until the first one has ended or was killed") {
    struct WaitToBeKilled : dptk::Callback {
        explicit WaitToBeKilled(int ready) : ready(ready) {}
        void batch_end(TrainingRun& run) override {
            if (run.status().step < 2) return;
            static_cast<void>(::write(ready, "x", 1));
            ::pause();
        }
        int ready;
    };
    const TemporaryFolder folder;
    int pipe[2];
    REQUIRE(::pipe(pipe) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        dptk::launch_threads(1, [&](ProcessGroup& group) {
            dptk::nn::Network<Backend> net = test::small_convnet();
            dptk::Trainer trainer(group, net, test::small_options(1));
            trainer.add(dptk::Checkpoint(folder / "run", {.every_steps = 1}));
            trainer.add(WaitToBeKilled(pipe[1]));
            trainer.fit(test::digits("train"), test::digits("test"));
        });
        ::_exit(1);
    }
    ::close(pipe[1]);
    char ready = 0;
    REQUIRE(::read(pipe[0], &ready, 1) == 1);
    ::close(pipe[0]);
    const auto before = test::files_in(folder / "run");
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        for (const bool resumes : {true, false}) {
            std::string message;
            CHECK(test::throws<dptk::Error>(
                message, [&] { train(group, folder / "run", 3, {.resume = resumes}); }, test::Agreed::yes));
            CHECK(test::contains(
                message, (folder / "run").string() + ": process " + std::to_string(child) + " on host "));
            CHECK(test::contains(message, " trains in this folder: "));
        }
    });
    CHECK(test::files_in(folder / "run") == before);
    ::kill(child, SIGKILL);
    REQUIRE(::waitpid(child, nullptr, 0) == child);
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        CHECK(train(group, folder / "run", 5).status.step == 5);
        CHECK(train(group, folder / "run", 6).status.step == 6);
    });
    // A file system that has no locks.
    const test::FailingCall failing("lock", "ENOLCK", folder / "run");
    dptk::launch_threads(
        2, [&](ProcessGroup& group) { CHECK(train(group, folder / "run", 7).status.step == 7); });
}

TEST_CASE("a new run needs a folder without checkpoints") {
    const TemporaryFolder folder;
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        train(group, folder / "run", 4);
        std::string message;
        CHECK(test::throws<dptk::Error>(
            message, [&] { train(group, folder / "run", 2, {.resume = false}); }, test::Agreed::yes));
        CHECK(test::contains(message,
                             (folder / "run").string() + ": has a checkpoint of step 4, of an earlier run"));
        CHECK(train(group, folder / "other", 2, {.resume = false}).status.step == 2);
    });
}

TEST_CASE("a loss that is not finite is not saved") {
    const dptk::ImageDataset images = test::digits("train");
    std::vector<std::pair<std::vector<float>, int>> samples;
    for (std::size_t i = 0; i < 1000; ++i)
        samples.emplace_back(std::vector<float>(images[i].pixels.begin(), images[i].pixels.end()),
                             images[i].label);
    samples[77].first[3] = std::numeric_limits<float>::quiet_NaN();
    struct StopAtOnce : dptk::Callback {
        void step(TrainingRun& run) override {
            const auto* first = static_cast<const float*>(run.parameters()[0].value_buffer().data);
            if (!std::isfinite(*first)) run.stop("a signal");
        }
    };
    for (const std::int64_t every_steps : {1, 0}) {  // saved in the epoch, or because a signal ends the run
        const TemporaryFolder folder;
        dptk::launch_threads(2, [&](ProcessGroup& group) {
            dptk::nn::Network<Backend> net = test::small_convnet();
            dptk::TrainerOptions options = test::small_options(1);
            options.batch_size = 4;  // the loss is looked at every 6 steps
            dptk::Trainer trainer(group, net, options);
            if (every_steps == 0) trainer.add(StopAtOnce());
            trainer.add(dptk::Checkpoint(folder / "run", {.every_steps = every_steps}));
            CHECK_THROWS_AS(trainer.fit(samples, samples), dptk::NonFiniteLossError);
            if (group.rank() != 0) return;
            std::vector<std::string> remarks;
            const auto newest = dptk::CheckpointFolder(folder / "run").load_newest(remarks);
            CHECK(newest.has_value() == (every_steps == 1));
            if (newest)
                CHECK(std::ranges::all_of(model_values(*newest), [](float x) { return std::isfinite(x); }));
        });
    }
}

TEST_CASE("after a failed end of an epoch, a new run saves where it is") {
    struct FailOnce : dptk::Callback {
        bool has_failed = false;
        std::int64_t batch = -1;
        void batch_end(TrainingRun& run) override { batch = run.state().number("trainer.batch"); }
        void epoch_end(TrainingRun& run) override {
            if (std::exchange(has_failed, true)) return;
            dptk::on_all_or_none(run.group(), [] { throw std::runtime_error("full"); });
        }
    };
    dptk::launch_threads(2, [](ProcessGroup& group) {
        dptk::nn::Network<Backend> net = test::small_convnet();
        dptk::Trainer trainer(group, net, test::small_options(1));
        const auto& fail = trainer.add(FailOnce());
        const dptk::ImageDataset samples = test::digits("test");
        CHECK_THROWS_AS(trainer.fit(samples, samples), dptk::Error);
        trainer.add(StopAfter(3));
        CHECK(trainer.fit(samples, samples).step == 3);
        CHECK(fail.batch == 3);
    });
}

TEST_CASE("what was best is only compared with results of the same kind") {
    const TemporaryFolder folder;
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        const auto train = [&](int last_epoch, dptk::Monitor monitor) {
            dptk::nn::Network<Backend> net = test::small_convnet();
            dptk::Trainer trainer(group, net, test::small_options(last_epoch));
            trainer.add(dptk::EarlyStopping({.monitor = monitor, .patience = 1}));
            trainer.add(dptk::Checkpoint(folder / "run", {.monitor = monitor}));
            return trainer.fit(test::digits("train"), test::digits("test"));
        };
        train(1, dptk::Monitor::accuracy);
        const dptk::TrainingStatus status = train(2, dptk::Monitor::loss);
        CHECK(status.stop_reason.empty());
        if (group.rank() != 0) return;
        CHECK(dptk::CheckpointFolder::load(folder / "run/best").number("trainer.step") == status.step);
    });
}

TEST_CASE("a run ends early that does not get better, and has then ended for good") {
    struct Epochs : dptk::Callback {
        void epoch_end(TrainingRun& run) override { seen.push_back(run.status().epoch); }
        std::vector<int> seen;
    };
    const TemporaryFolder folder;
    dptk::launch_threads(2, [&](ProcessGroup& group) {
        const auto train = [&](const char* name, dptk::Monitor monitor, const auto& tested) {
            dptk::nn::Network<Backend> net = test::small_convnet();
            dptk::TrainerOptions options = test::small_options(20);
            options.sgd = {.lr = 0};
            dptk::Trainer trainer(group, net, options);
            const auto& epochs = trainer.add(Epochs());
            trainer.add(dptk::EarlyStopping({.monitor = monitor, .patience = 2, .min_delta = 0.2}));
            trainer.add(dptk::Checkpoint(folder / name));
            CHECK(test::contains(trainer.fit(test::digits("train"), tested).stop_reason, " in 2 epochs"));
            return epochs.seen;
        };
        const dptk::ImageDataset digits = test::digits("test");
        CHECK(train("run", dptk::Monitor::accuracy, digits) == std::vector<int>{0, 1, 2});
        CHECK(train("run", dptk::Monitor::accuracy, digits).empty());
        // No epoch is better than another.
        const std::vector<std::pair<std::vector<float>, int>> not_finite = {
            {std::vector<float>(64, std::numeric_limits<float>::quiet_NaN()), 1}};
        CHECK(train("nan", dptk::Monitor::loss, not_finite) == std::vector<int>{0, 1});
        CHECK(train("nan", dptk::Monitor::loss, not_finite).empty());
    });
}

TEST_CASE("a folder's lock does not exclude processes of the same elastic job") {
    const TemporaryFolder folder;
    const dptk::detail::FolderLock lock(folder / "", "run1");
    CHECK_NOTHROW(dptk::detail::FolderLock(folder / "", "run1"));
    CHECK_THROWS_AS(dptk::detail::FolderLock(folder / "", "run2"), dptk::ArgumentError);
    CHECK_THROWS_AS(dptk::detail::FolderLock(folder / ""), dptk::ArgumentError);
}
