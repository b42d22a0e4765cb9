// A training program that continues when its ranks change: program EPOCHS MILLISECONDS_PER_STEP [fixed]. It
// prints each change, and at the end a hash of the values. With `fixed`, it does not say that it continues.
#include <dptk/comm/tcp.hpp>
#include <dptk/data/batch_cursor.hpp>
#include <dptk/ddp.hpp>
#include <dptk/ddp/elastic_state.hpp>
#include <dptk/optim/sgd.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>
#include <utility>

#include "elastic/model.hpp"

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    try {
        const std::chrono::milliseconds step_time(std::atoi(argv[2]));
        dptk::ProcessGroup group = dptk::init_process_group({.elastic = argc == 3});
        elastic::Model model;
        dptk::SGD<float> sgd({.lr = 0.05, .momentum = 0.9});
        dptk::DistributedDataParallel ddp(group, model.values, model.gradients);
        dptk::DistributedSampler sampler(elastic::samples, group, elastic::sampling);
        dptk::BatchCursor cursor(sampler, elastic::batch_size, std::atoi(argv[1]));
        dptk::ElasticState state(group, ddp, sgd, cursor);
        std::int64_t seen = 0;
        state.run([&] { return cursor.done(); },
                  [&] {
                      if (std::exchange(seen, state.changes()) != state.changes()) {
                          std::printf("process %d is rank %d of %d at step %lld\n", getpid(), group.rank(),
                                      group.size(), static_cast<long long>(state.steps()));
                          std::fflush(stdout);
                      }
                      model.compute(cursor.batch());
                      std::this_thread::sleep_for(step_time);
                      ddp.synchronize(cursor.batch().size());
                      sgd.step(ddp.parameters());
                      cursor.advance();
                  });
        std::printf("values %llx\n", static_cast<unsigned long long>(model.hash()));
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
