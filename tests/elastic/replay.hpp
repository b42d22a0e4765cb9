/// A training of the model that changes its number of ranks, without any fault.
#pragma once

#include <dptk/comm/thread.hpp>
#include <dptk/data/batch_cursor.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "elastic/model.hpp"
#include "elastic/steps.hpp"

namespace elastic {

/// Trains with these numbers of ranks, one for each step. Returns the hashes of the values after each step.
template <class Steps>
std::vector<std::uint64_t> replay(const std::vector<int>& sizes, std::int64_t epochs) {
    std::vector<std::uint64_t> hashes;
    Model shared;
    std::vector<dptk::OptimizerState<float>> moments;
    dptk::SamplerState position;
    for (std::size_t first = 0; first < sizes.size();) {
        std::size_t last = first;
        while (last < sizes.size() && sizes[last] == sizes[first]) ++last;
        const bool begins = first == 0;
        dptk::launch_threads(sizes[first], [&](dptk::ProcessGroup& group) {
            Model model;
            model.values = shared.values;
            Steps steps(group, model);
            if (!begins) steps.load_state(moments);
            dptk::DistributedSampler sampler(samples, group, sampling);
            if (!begins) sampler.restore(position);
            dptk::BatchCursor cursor(sampler, batch_size, epochs);
            for (std::size_t i = first; i < last; ++i) {
                model.compute(cursor.batch());
                steps.synchronize(cursor.batch().size());
                steps.step();
                cursor.advance();
                if (group.rank() == 0) hashes.push_back(model.hash());
            }
            const std::vector<dptk::OptimizerState<float>> state = steps.state();
            group.barrier();
            if (group.rank() != 0) return;
            shared.values = model.values;
            moments = state;
            position = cursor.state();
        });
        first = last;
    }
    return hashes;
}

}  // namespace elastic
