#include <dptk/comm/communicator.hpp>

#include <memory>
#include <string_view>

struct OwnTransport : dptk::Transport {
#ifndef WITHOUT_rank
    int rank() const override { return 0; }
#endif
#ifndef WITHOUT_size
    int size() const override { return 1; }
#endif
#ifndef WITHOUT_backend
    std::string_view backend() const override { return "none"; }
#endif
#ifndef WITHOUT_send
    void send(const dptk::Buffer&, int, int) override {}
#endif
#ifndef WITHOUT_recv
    void recv(const dptk::Buffer&, int, int) override {}
#endif
#ifdef WRONG_run
    void run(const dptk::Buffer&) override {}
#endif
#ifdef WRONG_duplicate
    std::unique_ptr<dptk::Transport> duplicate(int) override;
#endif
#ifdef WRONG_local_rank
    int local_rank() override { return 0; }
#endif
#ifdef WRONG_start
    int start(const dptk::Collective&) override { return 0; }
#endif
};

using Communicator = dptk::BasicCommunicator<OwnTransport>;

Communicator make() {
    return Communicator(OwnTransport{});
}
