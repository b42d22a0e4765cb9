/// SelfTransport is the transport of a group of one rank, like MPI_COMM_SELF. init_process_group uses it, for
/// example, if no launcher has started the program. Collectives only copy the input to the output.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string_view>

#include "dptk/comm/communicator.hpp"
#include "dptk/comm/transport.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE {

/// The transport of a group of one rank.
class SelfTransport final : public Transport {
  public:
    /// Creates the transport. The groups of launch_threads inherit `timeout`; calls of one rank need none.
    explicit SelfTransport(std::chrono::milliseconds timeout = default_timeout) : timeout_(timeout) {}

    [[nodiscard]] int rank() const noexcept override { return 0; }
    [[nodiscard]] int size() const noexcept override { return 1; }
    [[nodiscard]] std::string_view backend() const noexcept override { return "self"; }
    [[nodiscard]] TransportCapabilities capabilities() const noexcept override {
        return {.duplicate = true, .subgroup = true};
    }

    /// Throws ArgumentError, since the group has no other rank.
    DPTK_INLINE void send(const Buffer& buffer, int to, int tag) override;
    DPTK_INLINE void recv(const Buffer& buffer, int from, int tag) override;

    [[nodiscard]] DPTK_INLINE std::unique_ptr<Transport> duplicate() override;
    [[nodiscard]] DPTK_INLINE std::unique_ptr<Transport> subgroup(std::span<const int> ranks,
                                                                  std::string_view name) override;

    /// Returns a control plane without a store.
    [[nodiscard]] DPTK_INLINE std::shared_ptr<detail::ControlPlane> control() const override;

  private:
    std::chrono::milliseconds timeout_;
};

/// A communicator of one rank: SelfCommunicator(SelfTransport{}).
using SelfCommunicator = BasicCommunicator<SelfTransport>;

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/self.ipp"
#endif
