// Ends in the way that the command line names: endings ROLE ENDING.
//   ROLE: host (dptk initializes MPI), guest or guest-funneled (this program initializes and finalizes MPI)
#include <dptk/comm/mpi.hpp>
#include <dptk/ddp.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

/// A program may keep its group in a global variable, which is destroyed last.
std::optional<dptk::ProcessGroup> global_group;

void train(const std::string& ending) {
    dptk::ProcessGroup group = dptk::init_process_group();
    std::vector<std::vector<float>> values = {{1, 2}, {3}}, gradients = {{1, 1}, {1}};
    if (ending == "global") global_group.emplace(group.duplicate());
    if (ending.starts_with("agreed")) {
        try {
            gradients[0].resize(group.rank() == 1 ? 5 : 2);
            const dptk::DistributedDataParallel ddp(group, values, gradients);
            std::abort();
        } catch (const dptk::ArgumentError& error) {
            if (!error.agreed()) throw;
            gradients[0].resize(2);
        }
        // After an agreed error was caught, another error must still end the job.
        if (ending == "agreed-then-caught" && group.rank() == 1)
            throw std::runtime_error("rank 1 has had enough");
    }
    dptk::DistributedDataParallel ddp(group, values, gradients,
                                      {.bucket_cap_mb = 1e-6, .ready = dptk::Ready::marked});
    if (ending == "agreed-past-all") {
        dptk::on_all_or_none(group, [&] {
            if (group.rank() == 1) throw std::runtime_error("no such file");
        });
    }
    if (ending == "nobody-sends") {
        std::vector<int> data(3);
        if (group.rank() == 0) group.recv(data);
        return;
    }
    if (ending == "long-message") {
        std::vector<int> data(group.rank() == 0 ? 5 : 3);
        if (group.rank() == 0) group.send(data, 1);
        group.barrier();  // the message has arrived before recv is called
        if (group.rank() == 1) group.recv_async(data, 0).wait();
    }
    if (ending.starts_with("caught-in-flight") && group.rank() == 1) {
        std::vector<int> data(3);  // the other ranks neither join nor send
        const dptk::Work work =
            ending.ends_with("recv") ? group.recv_async(data, 0) : group.all_reduce_async(data);
        throw std::runtime_error("rank 1 has had enough");
    }
    for (int step = 0; step < 10; ++step) {
        const bool now = step == 5 && group.rank() == 1;
        if (now && ending == "exit") std::exit(3);
        if (now && ending == "early") return;
        if (now && ending == "late") std::this_thread::sleep_for(std::chrono::seconds(30));
        ddp.mark_ready(1);
        if (now && ending.ends_with("in-overlap")) throw std::runtime_error("rank 1 has had enough");
        ddp.mark_ready(0);
        if (now && (ending.starts_with("uncaught") || ending.starts_with("caught"))) {
            throw std::runtime_error("rank 1 has had enough");
        }
        ddp.synchronize();
    }
    if (ending == "never-closed") static_cast<void>(new dptk::ProcessGroup(group.duplicate()));
    std::printf("rank %d of %d: done\n", group.rank(), group.size());
}

}  // namespace

int main(int argc, char** argv) {
    const std::string role = argc > 1 ? argv[1] : "";
    const std::string ending = argc > 2 ? argv[2] : "";
    if (role != "host") {
        int provided = 0;
        MPI_Init_thread(&argc, &argv, role == "guest" ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED, &provided);
    }
    if (ending.starts_with("caught") || ending == "agreed-then-caught" || ending == "agreed-past-all") {
        try {
            train(ending);
        } catch (const std::exception& error) {
            std::printf("caught: %s\n", error.what());
            std::fflush(stdout);
        }
    } else {
        train(ending);
    }
    if (role != "host") MPI_Finalize();
}
