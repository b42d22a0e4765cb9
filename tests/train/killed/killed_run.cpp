// killed_run FOLDER EPOCHS: trains on the digits, or continues from the newest checkpoint in FOLDER. Rank 0
// prints the hash of the parameters at the end. check-killed kills it.
#include <dptk/train/checkpoint/checkpoint.hpp>
#include <dptk/train/stop_signals.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "train/checkpoint/model.hpp"

int main(int argc, char** argv) try {
    if (argc != 3) {
        std::fputs("usage: killed_run FOLDER EPOCHS\n", stderr);
        return 2;
    }
    const int epochs = std::atoi(argv[2]);
    const dptk::StopSignals signals;
    dptk::ProcessGroup group = dptk::init_process_group();
    dptk::nn::Network<test::Backend> net = test::small_convnet();
    dptk::Trainer trainer(group, net, test::small_options(epochs));
    test::add_callbacks(trainer, epochs);
    trainer.add(dptk::StopOnSignal());
    trainer.add(dptk::Checkpoint(argv[1], {.every_steps = 3, .in_background = true, .remark = [](auto& text) {
                                               std::printf("%s\n", text.c_str());
                                           }}));
    const dptk::TrainingStatus status = trainer.fit(test::digits("train"), test::digits("test"));
    const auto hash = dptk::detail::agreed_parameter_hash(group, trainer.parameters());
    if (group.rank() != 0) return 0;
    if (!status.stop_reason.empty())
        std::printf("stopped at step %lld: %s\n", static_cast<long long>(status.step),
                    status.stop_reason.c_str());
    std::printf("step %lld, accuracy %.9f, parameters %016llx\n", static_cast<long long>(status.step),
                status.test.accuracy, static_cast<unsigned long long>(hash));
} catch (const std::exception& error) {
    std::fprintf(stderr, "killed_run: %s\n", error.what());
    return 1;
}
