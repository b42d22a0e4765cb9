#include <dptk/comm/communicator.hpp>

#include <string_view>

struct Transport {
#ifndef WITHOUT_rank
    int rank() const { return 0; }
#endif
#ifndef WITHOUT_size
    int size() const { return 1; }
#endif
#ifndef WITHOUT_backend
    std::string_view backend() const { return "none"; }
#endif
#ifndef WITHOUT_send
    void send(const dptk::Buffer&, int, int) {}
#endif
#ifndef WITHOUT_recv
    void recv(const dptk::Buffer&, int, int) {}
#endif
#ifdef WRONG_all_reduce
    void all_reduce(const dptk::Buffer&) {}
#endif
#ifdef WRONG_duplicate
    Transport duplicate(int);
#endif
#ifdef WITHOUT_move
    Transport(Transport&&) = delete;
#endif
};

using Communicator = dptk::BasicCommunicator<Transport>;

void use(Communicator& communicator) {
    communicator.barrier();
}
