/// A group of one: every collective is already done. What a program gets when no launcher started it.
#pragma once

#include <cstring>
#include <string_view>

#include "dptk/comm/communicator.hpp"

namespace dptk {

class SelfTransport {
  public:
    [[nodiscard]] int rank() const noexcept { return 0; }
    [[nodiscard]] int size() const noexcept { return 1; }
    [[nodiscard]] std::string_view backend() const noexcept { return "self"; }

    /// There is nobody to talk to. Throws ArgumentError.
    void send(const Buffer&, int to, int) { refuse("send to", to); }
    void recv(const Buffer&, int from, int) { refuse("recv from", from); }

    void all_reduce(const Buffer&, ReduceOp) {}
    void broadcast(const Buffer&, int) {}

    void all_gather(const Buffer& input, const Buffer& output) {
        if (input.bytes() != 0) std::memmove(output.data, input.data, input.bytes());
    }

    void barrier() {}

    [[nodiscard]] SelfTransport duplicate() { return {}; }

  private:
    static void refuse(std::string_view what, int peer) {
        throw ArgumentError(detail::text(what, " rank ", peer, " in a group of one rank"));
    }
};

using SelfCommunicator = BasicCommunicator<SelfTransport>;

}  // namespace dptk
