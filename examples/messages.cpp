// Point-to-point messages between two ranks, blocking and asynchronous. Build and run:
//   mpicxx -std=c++20 -DDPTK_WITH_MPI -I include examples/messages.cpp -o messages
//   mpirun -np 2 ./messages
// or, without MPI:
//   g++ -std=c++20 -I include examples/messages.cpp -o messages
//   dptk-run --nproc-per-node 2 -- ./messages
#include <dptk/comm/tcp.hpp>
#include <dptk/ddp.hpp>

#include <array>
#include <cstdio>
#include <numeric>
#include <vector>

namespace {

// send and recv block until their buffers may be used again.
void blocking(dptk::ProcessGroup& group) {
    std::vector<int> numbers(2);
    if (group.rank() == 0) {
        numbers = {1, -1};
        group.send(numbers, 1);
    } else {
        group.recv(numbers, 0);
        std::printf("recv: rank 1 has [%d, %d] from rank 0\n", numbers[0], numbers[1]);
    }
}

// send_async and recv_async return a Work at once. Until wait() has returned, the program may read but not
// write the buffer that it sends, and must not access the buffer that it receives.
void in_the_background(dptk::ProcessGroup& group) {
    const int other = 1 - group.rank();
    std::array<double, 1000> mine{};
    std::array<double, 1000> theirs{};
    mine.fill(0.5 + group.rank());

    dptk::Work receiving = group.recv_async(theirs, other);
    dptk::Work sending = group.send_async(mine, other);
    const double own_sum = std::accumulate(mine.begin(), mine.end(), 0.0);
    sending.wait();
    receiving.wait();

    const double sum = std::accumulate(theirs.begin(), theirs.end(), 0.0);
    std::printf(
        "recv_async: rank %d received numbers with the sum %g from rank %d, and sent some with the sum %g\n",
        group.rank(), sum, receiving.source_rank(), own_sum);
}

// Tags distinguish kinds of messages. recv from any_rank returns the sender's rank.
void tagged(dptk::ProcessGroup& group) {
    constexpr int lengths = 1;
    constexpr int values = 2;
    if (group.rank() == 1) {
        const std::vector<float> data = {0.25F, 0.5F, 0.75F};
        group.send(std::array{data.size()}, 0, lengths);
        group.send(data, 0, values);
    } else {
        std::array<std::size_t, 1> length{};
        const int sender = group.recv(length, dptk::any_rank, lengths);
        std::vector<float> data(length[0]);
        group.recv(data, sender, values);
        std::printf("tags: rank 0 has %zu numbers from rank %d, the last one %g\n", data.size(), sender,
                    static_cast<double>(data.back()));
    }
}

}  // namespace

int main() {
    dptk::ProcessGroup group = dptk::init_process_group();
    if (group.size() != 2) {
        if (group.rank() == 0)
            std::fprintf(stderr, "messages: expected 2 ranks, got %d; messages.cpp shows how to start it\n",
                         group.size());
        return 1;
    }
    blocking(group);
    in_the_background(group);
    tagged(group);
}
