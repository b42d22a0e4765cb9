// A training program that continues when its ranks change: program EPOCHS MILLISECONDS_PER_STEP [MODE]. It
// prints each change, and at the end a hash of the values. With the mode `fixed`, it does not say that it
// continues; with `reproducible`, the values do not depend on the ranks; with `idle`, nothing is sent for
// three seconds in the first step.
#ifdef DPTK_WITH_GLOO
#include <dptk/comm/gloo.hpp>
#endif
#include <dptk/comm/tcp.hpp>
#include <dptk/data/batch_cursor.hpp>
#include <dptk/data/batch_sampler.hpp>
#include <dptk/ddp.hpp>
#include <dptk/ddp/elastic_state.hpp>
#include <dptk/ddp/reproducible.hpp>
#include <dptk/optim/sgd.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <thread>
#include <utility>

#include "elastic/model.hpp"

namespace {

using elastic::Model;

/// Prints a line in a process's first step, and whenever its rank or the number of ranks has changed.
class PrintChanges {
  public:
    PrintChanges(const dptk::ProcessGroup& group, const dptk::ElasticState& state)
        : group_(group), state_(state) {}

    void operator()() {
        if (std::exchange(seen_, state_.changes()) == state_.changes()) return;
        std::printf("process %d is rank %d of %d at step %lld\n", getpid(), group_.rank(), group_.size(),
                    static_cast<long long>(state_.steps()));
        std::fflush(stdout);
    }

  private:
    const dptk::ProcessGroup& group_;
    const dptk::ElasticState& state_;
    std::int64_t seen_ = 0;
};

void train(dptk::ProcessGroup& group, Model& model, int epochs, std::chrono::milliseconds step_time,
           std::chrono::milliseconds first_time) {
    dptk::SGD<float> sgd({.lr = 0.05, .momentum = 0.9});
    dptk::DistributedDataParallel ddp(group, model.values, model.gradients);
    dptk::DistributedSampler sampler(elastic::samples, group, elastic::sampling);
    dptk::BatchCursor cursor(sampler, elastic::batch_size, epochs);
    dptk::ElasticState state(group, ddp, sgd, cursor);
    PrintChanges print(group, state);
    state.run([&] { return cursor.done(); },
              [&] {
                  print();
                  model.compute(cursor.batch());
                  std::this_thread::sleep_for(std::exchange(first_time, step_time));
                  ddp.synchronize(cursor.batch().size());
                  sgd.step(ddp.parameters());
                  cursor.advance();
              });
}

/// The values do not depend on the ranks.
void train_reproducibly(dptk::ProcessGroup& group, Model& model, int epochs,
                        std::chrono::milliseconds step_time) {
    struct Position {
        int epoch = 0;
        std::size_t batch = 0;
    };
    constexpr std::size_t shards = 12;
    dptk::SGD<float> sgd({.lr = 0.05, .momentum = 0.9});
    dptk::ReproducibleDataParallel ddp(group, model.values, model.gradients, shards);
    Position position;
    dptk::ElasticState state(group, ddp, sgd, position);
    PrintChanges print(group, state);
    state.run([&] { return position.epoch >= epochs; },
              [&] {
                  print();
                  std::this_thread::sleep_for(step_time);
                  std::size_t batches = 0;
                  for (const std::size_t shard : ddp.shards()) {
                      dptk::DistributedSampler sampler(elastic::samples, shards, shard, elastic::sampling);
                      sampler.set_epoch(position.epoch);
                      const dptk::BatchSampler all(sampler, elastic::batch_size);
                      batches = all.size();
                      const std::vector<std::size_t> batch = all[position.batch];
                      model.compute(batch);
                      ddp.add_shard(batch.size());
                  }
                  ddp.synchronize();
                  sgd.step(ddp.parameters());
                  if (++position.batch == batches) position = {position.epoch + 1, 0};
              });
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    try {
        const int epochs = std::atoi(argv[1]);
        const std::chrono::milliseconds step_time(std::atoi(argv[2]));
        const std::string_view mode = argc > 3 ? argv[3] : "";
        dptk::ProcessGroup group = dptk::init_process_group({.elastic = mode != "fixed"});
        Model model;
        if (mode == "reproducible")
            train_reproducibly(group, model, epochs, step_time);
        else
            train(group, model, epochs, step_time, mode == "idle" ? std::chrono::seconds(3) : step_time);
        std::printf("over %s\n", group.backend().c_str());
        std::printf("process %d has the values %llx\n", getpid(),
                    static_cast<unsigned long long>(model.hash()));
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
