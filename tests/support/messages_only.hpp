// A transport of nothing but send and recv, as somebody would write their own: thread ranks underneath.
#pragma once

#include <dptk/comm/thread.hpp>

#include <memory>
#include <string_view>

namespace test {

class MessagesOnly {
  public:
    MessagesOnly(const std::shared_ptr<dptk::detail::ThreadHub>& hub, int rank) : transport_(hub, rank) {}

    [[nodiscard]] int rank() const noexcept { return transport_.rank(); }
    [[nodiscard]] int size() const noexcept { return transport_.size(); }
    [[nodiscard]] std::string_view backend() const noexcept { return "messages"; }
    void send(const dptk::Buffer& buffer, int to, int tag) { transport_.send(buffer, to, tag); }
    void recv(const dptk::Buffer& buffer, int from, int tag) { transport_.recv(buffer, from, tag); }

  private:
    dptk::ThreadTransport transport_;
};

}  // namespace test
