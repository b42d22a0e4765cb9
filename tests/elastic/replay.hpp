/// A training of the model that changes its number of ranks, without any fault.
#pragma once

#include <dptk/comm/thread.hpp>
#include <dptk/data/batch_cursor.hpp>
#include <dptk/ddp.hpp>
#include <dptk/optim/sgd.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "elastic/model.hpp"

namespace elastic {

/// Trains with these numbers of ranks, one for each step. Returns the hashes of the values after each step.
inline std::vector<std::uint64_t> replay(const std::vector<int>& sizes, std::int64_t epochs) {
    std::vector<std::uint64_t> hashes;
    Model shared;
    std::vector<dptk::OptimizerState<float>> moments(1);
    dptk::SamplerState position;
    for (std::size_t first = 0; first < sizes.size();) {
        std::size_t last = first;
        while (last < sizes.size() && sizes[last] == sizes[first]) ++last;
        const bool begins = first == 0;
        dptk::launch_threads(sizes[first], [&](dptk::ProcessGroup& group) {
            Model model;
            model.values = shared.values;
            dptk::SGD<float> sgd({.lr = 0.05, .momentum = 0.9});
            if (!begins) sgd.set_state(0, moments[0]);
            dptk::DistributedDataParallel ddp(group, model.values, model.gradients);
            dptk::DistributedSampler sampler(samples, group, sampling);
            if (!begins) sampler.restore(position);
            dptk::BatchCursor cursor(sampler, batch_size, epochs);
            for (std::size_t i = first; i < last; ++i) {
                model.compute(cursor.batch());
                ddp.synchronize(cursor.batch().size());
                sgd.step(ddp.parameters());
                cursor.advance();
                if (group.rank() == 0) hashes.push_back(model.hash());
            }
            group.barrier();
            if (group.rank() != 0) return;
            shared.values = model.values;
            moments[0] = sgd.state(0);
            position = cursor.state();
        });
        first = last;
    }
    return hashes;
}

}  // namespace elastic
