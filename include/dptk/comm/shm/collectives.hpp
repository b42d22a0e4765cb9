/// The collectives of ranks that share memory: in place where all ranks' elements lie in what they share, and
/// piece by piece through it where they do not. Between hosts each rank works with those of its place there.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "dptk/comm/shm/context.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

class ShmCollectives {
  public:
    explicit ShmCollectives(ShmContext context);

    [[nodiscard]] ShmRegion& region() noexcept { return context_.region(); }

    [[nodiscard]] std::shared_ptr<void> allocate(std::size_t bytes) { return context_.allocate(bytes); }

    [[nodiscard]] std::vector<void*> peer_memory(const Buffer& memory) const;

    /// Whether the call can be carried out here. The same on all ranks.
    [[nodiscard]] bool serves(const Collective& call) const noexcept;

    void run(const Collective& call);

  private:
    /// Whether the hosts' results can be put together: other hosts' ranks may lie between this host's, where
    /// the order counts, and a product of 16-bit numbers would be rounded on each host.
    [[nodiscard]] bool can_be_combined(const Collective& call) const noexcept;

    void barrier(const Collective& call);

    ShmContext context_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/shm/collectives.ipp"
#endif
