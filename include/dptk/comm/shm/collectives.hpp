/// Shared-memory collectives. A large call works in place if the elements of all ranks lie in shared memory,
/// and in pieces through staging buffers otherwise. Between hosts, ranks with the same local rank
/// communicate.
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

    /// Whether the call can be carried out through shared memory. All ranks get the same result.
    [[nodiscard]] bool serves(const Collective& call) const noexcept;

    void run(const Collective& call);

    /// Compares the calls of the ranks of this host, before the inner transport carries out the call. Blocks
    /// until all of these ranks have entered it. Throws MismatchError on all of them if the calls differ.
    void check(const Collective& call) { context_.enter_barrier(call); }

  private:
    /// Whether a reduction within each host, followed by one between hosts, gives the right result. The
    /// result is wrong for user-defined functions, which depend on the order of the ranks (the ranks of a
    /// host need not be consecutive), and for products of 16-bit floats, which would be rounded on each host.
    [[nodiscard]] bool can_be_combined(const Collective& call) const noexcept;

    void barrier(const Collective& call);

    ShmContext context_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/shm/collectives.ipp"
#endif
