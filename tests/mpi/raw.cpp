// Compares probe() and all_to_all with different counts with MPI's own functions, which make the same calls
// at the same time. Prints the differences, and exits with 1 if there are any.
#include <mpi.h>
#include <dptk/comm/mpi.hpp>
#include <dptk/ddp.hpp>

#include <cstdio>
#include <numeric>
#include <vector>

namespace {

int differences = 0;

void expect_equal(const char* what, long expected, long found) {
    if (expected == found) return;
    std::printf("%s: MPI has %ld, dptk %ld\n", what, expected, found);
    ++differences;
}

std::vector<double> message(int from, int to, int round) {
    std::vector<double> out(static_cast<std::size_t>((3 * from + 5 * to + 7 * round) % 11) * 1000);
    std::iota(out.begin(), out.end(), 1000.0 * from + 100 * to + round);
    return out;
}

/// Each rank sends each other rank messages over MPI and over dptk. The receivers probe for both.
void compare_probe(dptk::ProcessGroup& group) {
    constexpr int rounds = 4;
    for (int receiver = 0; receiver < group.size(); ++receiver) {
        if (group.rank() != receiver) {
            for (int round = 0; round < rounds; ++round) {
                const std::vector<double> sent = message(group.rank(), receiver, round);
                MPI_Request request = MPI_REQUEST_NULL;
                MPI_Isend(sent.data(), static_cast<int>(sent.size()), MPI_DOUBLE, receiver, 10 + round,
                          MPI_COMM_WORLD, &request);
                group.send(sent, receiver, 10 + round);
                MPI_Wait(&request, MPI_STATUS_IGNORE);
            }
            continue;
        }
        for (int i = 0; i < rounds * (group.size() - 1); ++i) {
            MPI_Status status;
            MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            int count = 0;
            MPI_Get_count(&status, MPI_DOUBLE, &count);
            const dptk::MessageInfo found = group.probe(status.MPI_SOURCE);
            expect_equal("sender", status.MPI_SOURCE, found.source);
            expect_equal("tag", status.MPI_TAG, found.tag);
            expect_equal("count", count, static_cast<long>(found.count<double>()));
            std::vector<double> expected(static_cast<std::size_t>(count)), received;
            MPI_Recv(expected.data(), count, MPI_DOUBLE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            group.recv(received, found.source, found.tag);
            expect_equal("message is equal", 1, expected == received ? 1 : 0);
        }
        expect_equal("messages that are left", 0, group.try_probe() ? 1 : 0);
    }
}

void compare_all_to_all(dptk::ProcessGroup& group) {
    std::vector<int> counts, places, output_counts, output_places;
    std::vector<double> sent;
    std::size_t received = 0;
    for (int other = 0; other < group.size(); ++other) {
        const std::vector<double> out = message(group.rank(), other, 1);
        places.push_back(static_cast<int>(sent.size()));
        counts.push_back(static_cast<int>(out.size()));
        sent.insert(sent.end(), out.begin(), out.end());
        output_places.push_back(static_cast<int>(received));
        output_counts.push_back(static_cast<int>(message(other, group.rank(), 1).size()));
        received += static_cast<std::size_t>(output_counts.back());
    }
    std::vector<double> expected(received), found(received);
    MPI_Alltoallv(sent.data(), counts.data(), places.data(), MPI_DOUBLE, expected.data(),
                  output_counts.data(), output_places.data(), MPI_DOUBLE, MPI_COMM_WORLD);
    group.all_to_all(sent, found, std::vector<std::size_t>(counts.begin(), counts.end()),
                     std::vector<std::size_t>(output_counts.begin(), output_counts.end()));
    expect_equal("all_to_all is equal", 1, expected == found ? 1 : 0);
}

}  // namespace

int main() {
    dptk::ProcessGroup group = dptk::init_process_group();
    compare_probe(group);
    compare_all_to_all(group);
    differences = group.all_reduce_value(differences);
    if (group.rank() == 0) std::printf("%d differences on %d ranks\n", differences, group.size());
    return differences == 0 ? 0 : 1;
}
