#pragma once

#include "dptk/comm/simulated.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "dptk/control/health/control_plane.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::shared_ptr<SimulatedRank> SimulatedJob::join(int rank,
                                                              const std::shared_ptr<JobHealth>& health) {
    std::call_once(begun_, [&] {
        std::vector<int> all(static_cast<std::size_t>(network_.ranks()));
        std::iota(all.begin(), all.end(), 0);
        hub_ = SimulatedHub::make(network_, std::move(all), health);
    });
    auto self = std::make_shared<SimulatedRank>(rank, network_, start_, health);
    health->subscribe({self, &self->clock});
    return self;
}

DPTK_INLINE SimulatedTransport SimulatedJob::transport(const std::shared_ptr<SimulatedRank>& self) const {
    return {
        hub_, self,
        ControlPlane::make(
            {.rank = self->number, .size = network_.ranks(), .store = store_, .timeout = options_.timeout},
            hub_->health)};
}

DPTK_INLINE void SimulatedJob::end(SimulatedSeconds time) {
    const std::lock_guard lock(mutex_);
    end_ = std::max(end_, time);
}

}  // namespace DPTK_NAMESPACE::detail
