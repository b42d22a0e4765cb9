// Compares dptk over TCP with MPI, Gloo and bare sockets in one run: the verbs, and messages there and back,
// ten times in a row (a twentieth of that time is printed). BYTES is the size of the larger buffer of a verb.
// The result is the median of alternating runs; a barrier precedes each of them, and is not timed. Start it
// without shared memory, and with an MPI that uses TCP:
//   DPTK_SHM=0 mpirun -np 2 --mca pml ob1 --mca btl tcp,self tcp_peers [BYTES...]
#include <dptk/comm/mpi.hpp>
#include <dptk/comm/tcp.hpp>
#include <dptk/control/net/interface.hpp>
#include <dptk/control/net/socket.hpp>
#include <dptk/ddp.hpp>

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#ifdef DPTK_WITH_GLOO
#include "gloo_collectives.hpp"
#endif
#include "measure.hpp"

namespace {

using Floats = std::vector<float>;

/// The buffers of one rank: `one` and `all` have the same size, `part` is one rank's share of it.
struct Buffers {
    Floats one, all, part;
    int count, share;

    Buffers(std::size_t bytes, int ranks)
        : one(std::max<std::size_t>(bytes / sizeof(float), static_cast<std::size_t>(ranks))),
          all(one.size()),
          part(one.size() / static_cast<std::size_t>(ranks)),
          count(static_cast<int>(one.size())),
          share(static_cast<int>(part.size())) {
        all.resize(part.size() * static_cast<std::size_t>(ranks));
        one.resize(all.size());
        count = static_cast<int>(one.size());
    }
};

/// A verb through dptk, and through MPI.
struct Verb {
    const char* name;
    std::function<void(dptk::ProcessGroup&, Buffers&)> dptk;
    std::function<void(Buffers&)> mpi;
};

constexpr int round_trips = 10;

/// Rank 0 sends a message to rank 1, which sends it back; several times.
template <class Send, class Receive>
void there_and_back(int rank, Send&& send, Receive&& receive) {
    for (int i = 0; i < round_trips && rank < 2; ++i) {
        if (rank == 0) send();
        receive();
        if (rank == 1) send();
    }
}

[[nodiscard]] int world_rank() {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

const MPI_Comm world = MPI_COMM_WORLD;

const std::vector<Verb> verbs = {
    {"barrier", [](dptk::ProcessGroup& group, Buffers&) { group.barrier(); },
     [](Buffers&) { MPI_Barrier(world); }},
    {"message",
     [](dptk::ProcessGroup& group, Buffers& b) {
         there_and_back(
             group.rank(), [&] { group.send(b.one, 1 - group.rank()); },
             [&] { group.recv(b.one, 1 - group.rank()); });
     },
     [](Buffers& b) {
         const int rank = world_rank();
         there_and_back(
             rank, [&] { MPI_Send(b.one.data(), b.count, MPI_FLOAT, 1 - rank, 0, world); },
             [&] { MPI_Recv(b.one.data(), b.count, MPI_FLOAT, 1 - rank, 0, world, MPI_STATUS_IGNORE); });
     }},
    {"all_reduce", [](dptk::ProcessGroup& group, Buffers& b) { group.all_reduce(b.one); },
     [](Buffers& b) { MPI_Allreduce(MPI_IN_PLACE, b.one.data(), b.count, MPI_FLOAT, MPI_SUM, world); }},
    {"reduce", [](dptk::ProcessGroup& group, Buffers& b) { group.reduce(b.one, 0); },
     [](Buffers& b) {
         MPI_Reduce(world_rank() == 0 ? MPI_IN_PLACE : b.one.data(), b.one.data(), b.count, MPI_FLOAT,
                    MPI_SUM, 0, world);
     }},
    {"broadcast", [](dptk::ProcessGroup& group, Buffers& b) { group.broadcast(b.one, 0); },
     [](Buffers& b) { MPI_Bcast(b.one.data(), b.count, MPI_FLOAT, 0, world); }},
    {"all_gather", [](dptk::ProcessGroup& group, Buffers& b) { group.all_gather(b.part, b.all); },
     [](Buffers& b) {
         MPI_Allgather(b.part.data(), b.share, MPI_FLOAT, b.all.data(), b.share, MPI_FLOAT, world);
     }},
    {"reduce_scatter", [](dptk::ProcessGroup& group, Buffers& b) { group.reduce_scatter(b.all, b.part); },
     [](Buffers& b) {
         MPI_Reduce_scatter_block(b.all.data(), b.part.data(), b.share, MPI_FLOAT, MPI_SUM, world);
     }},
    {"gather", [](dptk::ProcessGroup& group, Buffers& b) { group.gather(b.part, b.all, 0); },
     [](Buffers& b) {
         MPI_Gather(b.part.data(), b.share, MPI_FLOAT, b.all.data(), b.share, MPI_FLOAT, 0, world);
     }},
    {"scatter", [](dptk::ProcessGroup& group, Buffers& b) { group.scatter(b.all, b.part, 0); },
     [](Buffers& b) {
         MPI_Scatter(b.all.data(), b.share, MPI_FLOAT, b.part.data(), b.share, MPI_FLOAT, 0, world);
     }},
    {"all_to_all", [](dptk::ProcessGroup& group, Buffers& b) { group.all_to_all(b.one, b.all); },
     [](Buffers& b) {
         MPI_Alltoall(b.one.data(), b.share, MPI_FLOAT, b.all.data(), b.share, MPI_FLOAT, world);
     }},
};

#ifdef DPTK_WITH_GLOO
/// Returns what Gloo calls for the verb; empty if Gloo does not have it.
[[nodiscard]] std::function<void()> in_gloo(bench::Gloo& gloo, const std::string& verb, int rank,
                                            Buffers& b) {
    if (verb == "barrier") return [&] { gloo.barrier(); };
    if (verb == "all_reduce") return [&] { gloo.all_reduce(b.one); };
    if (verb == "reduce") return [&] { gloo.reduce(b.one, 0); };
    if (verb == "broadcast") return [&] { gloo.broadcast(b.one, 0); };
    if (verb == "all_gather") return [&] { gloo.all_gather(b.part, b.all); };
    if (verb == "gather") return [&] { gloo.gather(b.part, b.all, 0); };
    if (verb == "scatter") return [&] { gloo.scatter(b.all, b.part, 0); };
    if (verb == "all_to_all") return [&] { gloo.all_to_all(b.one, b.all); };
    if (verb != "message") return {};
    return [&, rank] {
        there_and_back(
            rank, [&] { gloo.send(b.one, 1 - rank); }, [&] { gloo.recv(b.one, 1 - rank); });
    };
}
#endif

/// A bare connection between ranks 0 and 1.
class BareSocket {
  public:
    explicit BareSocket(dptk::ProcessGroup& group) : rank_(group.rank()) {
        const dptk::detail::Deadline deadline(std::chrono::seconds(10));
        const bool is_one_host = group.local_size() == group.size();
        std::string where;
        std::optional<dptk::detail::Socket> listener;
        if (rank_ == 0) {
            listener = dptk::detail::listen_on("", 0);
            where = std::to_string(listener->local_address().port) + ' ' +
                    (is_one_host ? "127.0.0.1" : dptk::detail::own_addresses().front());
        }
        where.resize(100, ' ');
        group.broadcast(where, 0);
        if (rank_ == 0) {
            ::fcntl(listener->number(), F_SETFL, 0);  // blocks
            socket_ = dptk::detail::Socket(
                dptk::detail::FileDescriptor(::accept4(listener->number(), nullptr, nullptr, SOCK_CLOEXEC)));
        } else if (rank_ == 1) {
            const std::size_t space = where.find(' ');
            const std::string host = where.substr(space + 1, where.find(' ', space + 1) - space - 1);
            socket_ = dptk::detail::connect_to(
                          host, static_cast<std::uint16_t>(std::stoi(where.substr(0, space))), deadline)
                          .socket;
        }
        if (rank_ > 1) return;
        socket_.set_up_connection();
        ::fcntl(socket_.number(), F_SETFL, 0);
    }

    void there_and_back(Buffers& b) {
        ::there_and_back(
            rank_, [&] { transfer(b, ::send, MSG_NOSIGNAL); }, [&] { transfer(b, ::recv, MSG_WAITALL); });
    }

  private:
    template <class Call>
    void transfer(Buffers& b, Call call, int flags) {
        auto* bytes = reinterpret_cast<char*>(b.one.data());
        for (std::size_t left = b.one.size() * sizeof(float); left > 0;) {
            const ssize_t done = call(socket_.number(), bytes, left, flags);
            if (done <= 0) std::abort();
            bytes += done;
            left -= static_cast<std::size_t>(done);
        }
    }

    int rank_;
    dptk::detail::Socket socket_;
};

/// Runs two operations in turn, and prints their medians.
void compare(dptk::ProcessGroup& group, const std::string& name, const char* peer, double scale,
             const std::function<void()>& ours, const std::function<void()>& theirs) {
    constexpr double longest = 1e6;  // microseconds
    constexpr std::size_t most = 301;
    constexpr std::size_t trial = 5;
    std::vector<double> times;
    std::vector<double> peer_times;
    std::size_t rounds = trial;
    for (std::size_t round = 0; round < rounds; ++round) {
        group.barrier();
        times.push_back(bench::microseconds(ours));
        group.barrier();
        peer_times.push_back(bench::microseconds(theirs));
        if (round + 1 != trial) continue;
        const double spent = std::accumulate(times.begin(), times.end(), 0.0) +
                             std::accumulate(peer_times.begin(), peer_times.end(), 0.0);
        const double one = group.all_reduce_value(spent, dptk::ReduceOp::max) / trial;
        rounds = std::clamp(static_cast<std::size_t>(longest / one), trial, most);
    }
    if (group.rank() != 0) return;
    const double us = bench::median(times) / scale;
    const double peer_us = bench::median(peer_times) / scale;
    std::printf("tcp_%s %.2f us | %s %.2f us | %.2f\n", name.c_str(), us, peer, peer_us, peer_us / us);
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    dptk::ProcessGroup processes = dptk::init_process_group();
    std::vector<int> ranks(static_cast<std::size_t>(processes.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    dptk::ProcessGroup group = processes.subgroup(ranks, {.backend = "tcp"});
    std::vector<std::size_t> sizes;
    for (int i = 1; i < argc; ++i) sizes.push_back(std::strtoull(argv[i], nullptr, 10));
    if (sizes.empty())
        sizes = {8, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};

    const auto for_each_verb = [&](auto&& fn) {
        for (const Verb& verb : verbs) {
            for (const std::size_t bytes : sizes) {
                const bool is_message = std::string(verb.name) == "message";
                if (std::string(verb.name) == "barrier" && bytes != sizes.front()) continue;
                if (is_message && group.size() != 2) continue;
                Buffers b(bytes, group.size());
                fn(verb, b,
                   std::string(verb.name) + '_' + std::to_string(bytes) + '_' + std::to_string(group.size()),
                   is_message ? 2.0 * round_trips : 1.0);
            }
        }
    };
    for_each_verb([&](const Verb& verb, Buffers& b, const std::string& name, double scale) {
        compare(
            group, name, "MPI", scale, [&] { verb.dptk(group, b); }, [&] { verb.mpi(b); });
    });
    BareSocket sockets(group);
    for_each_verb([&](const Verb& verb, Buffers& b, const std::string& name, double scale) {
        if (scale != 1.0)
            compare(
                group, name, "sockets", scale, [&] { verb.dptk(group, b); },
                [&] { sockets.there_and_back(b); });
    });
#ifdef DPTK_WITH_GLOO
    // Measured last: its threads slow down what is measured after it.
    bench::Gloo gloo(group);
    for_each_verb([&](const Verb& verb, Buffers& b, const std::string& name, double scale) {
        if (const auto theirs = in_gloo(gloo, verb.name, group.rank(), b)) {
            compare(
                group, name, "Gloo", scale, [&] { verb.dptk(group, b); }, theirs);
        }
    });
#endif
}
