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
#ifdef WRONG_local_rank
    int local_rank() { return 0; }
    int local_size() { return 1; }
#endif
#ifdef WRONG_local_size
    int local_size() const { return 1; }
#endif
#ifdef WRONG_control
    std::shared_ptr<dptk::detail::ControlPlane> control() { return nullptr; }
#endif
#ifdef WRONG_start
    int start(const dptk::Message&) { return 0; }
    int start(const dptk::Collective&) { return 0; }
#endif
#ifdef WRONG_allocate
    void* allocate(std::size_t) { return nullptr; }
#endif
#ifdef WRONG_subgroup
    template <class Ranks>
    int subgroup(const Ranks&) {
        return 0;
    }
#endif
#ifdef WRONG_competes_with_compute
    bool competes_with_compute() { return true; }
#endif
#ifdef WRONG_recv_any
    void recv_any(const dptk::Buffer&, int) {}
#endif
#ifdef WRONG_probe
    bool probe(int, int) { return false; }
#endif
#ifdef WRONG_interruptible
    bool interruptible() { return true; }
#endif
#ifdef WITHOUT_move
    Transport(Transport&&) = delete;
#endif
};

using Communicator = dptk::BasicCommunicator<Transport>;

void use(Communicator& communicator) {
    communicator.barrier();
}
