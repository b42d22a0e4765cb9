// MessagesOnly is a transport with the required members only (send and recv), over thread ranks.
#pragma once

#include <dptk/comm/thread.hpp>

#include <memory>
#include <string_view>

namespace test {

class MessagesOnly : public dptk::Transport {
  public:
    MessagesOnly(const dptk::detail::ThreadJob& job, int rank) : transport_(job.transport(rank)) {}

    [[nodiscard]] int rank() const noexcept override { return transport_.rank(); }
    [[nodiscard]] int size() const noexcept override { return transport_.size(); }
    [[nodiscard]] std::string_view backend() const noexcept override { return "messages"; }
    void send(const dptk::Buffer& buffer, int to, int tag) override { transport_.send(buffer, to, tag); }
    void recv(const dptk::Buffer& buffer, int from, int tag) override { transport_.recv(buffer, from, tag); }

  private:
    dptk::ThreadTransport transport_;
};

}  // namespace test
