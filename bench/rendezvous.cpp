// A rank that executes the rendezvous and a barrier, and prints when it began and ended, in seconds of the
// system clock.
#include <dptk/comm/tcp.hpp>
#include <dptk/ddp.hpp>

#include <chrono>
#include <cstdio>

namespace {

double now() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

int main() {
    const double begin = now();
    dptk::ProcessGroup group = dptk::init_process_group();
    group.barrier();
    std::printf("times %.6f %.6f\n", begin, now());
}
