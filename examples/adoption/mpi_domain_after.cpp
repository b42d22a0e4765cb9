// An MPI simulation with its own communicator and domain decomposition: heat conduction in a rod of 1,001
// cells, of which each rank owns a part. Meanwhile a neural network learns to predict the simulation's step.
// dptk averages the network's gradients:
//   mpirun -np 2 mpi_domain_after
#include <mpi.h>
#include <dptk/comm/mpi.hpp>
#include <dptk/ddp.hpp>

#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

// This rank's cells, with one halo cell of each neighbor.
struct Domain {
    MPI_Comm comm;
    int rank, ranks, left, right;
    int first, cells;
    std::vector<double> heat;

    explicit Domain(MPI_Comm world, int all_cells = 1001) {
        MPI_Comm_dup(world, &comm);
        MPI_Comm_rank(comm, &rank);
        MPI_Comm_size(comm, &ranks);
        left = rank > 0 ? rank - 1 : MPI_PROC_NULL;
        right = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
        first = all_cells * rank / ranks;
        cells = all_cells * (rank + 1) / ranks - first;
        for (int i = -1; i <= cells; ++i)
            heat.push_back(std::sin(0.01 * (first + i)) + std::sin(0.37 * (first + i)));
    }
    Domain(const Domain&) = delete;
    Domain& operator=(const Domain&) = delete;
    ~Domain() { MPI_Comm_free(&comm); }

    void exchange_borders() {
        double* const h = heat.data();
        MPI_Sendrecv(h + 1, 1, MPI_DOUBLE, left, 0, h + cells + 1, 1, MPI_DOUBLE, right, 0, comm,
                     MPI_STATUS_IGNORE);
        MPI_Sendrecv(h + cells, 1, MPI_DOUBLE, right, 1, h, 1, MPI_DOUBLE, left, 1, comm, MPI_STATUS_IGNORE);
    }

    [[nodiscard]] double next(int i) const {
        const double* h = heat.data() + i;
        return h[0] + 0.2 * (h[-1] - 2 * h[0] + h[1]) - 0.02 * h[0] * h[0] * h[0];
    }
};

// A neural network that predicts a cell's next value from the cell and its neighbors.
struct Net {
    static constexpr int hidden = 8;
    std::vector<std::vector<double>> weights = {std::vector<double>(3 * hidden), std::vector<double>(hidden),
                                                std::vector<double>(hidden), std::vector<double>(1)};
    std::vector<std::vector<double>> gradients = weights;

    explicit Net(int seed) {
        for (auto& weight : weights) {
            for (std::size_t i = 0; i < weight.size(); ++i)
                weight[i] = 0.5 * std::sin(static_cast<double>(7 * i) + seed);
        }
    }

    // Adds the gradients of half the squared error. Returns the squared error.
    double learn(const double* x, double target) {
        std::array<double, hidden> a{};
        double y = weights[3][0];
        for (std::size_t j = 0; j < hidden; ++j) {
            double sum = weights[1][j];
            for (std::size_t i = 0; i < 3; ++i) sum += weights[0][3 * j + i] * x[i];
            a[j] = std::tanh(sum);
            y += weights[2][j] * a[j];
        }
        const double error = y - target;
        gradients[3][0] += error;
        for (std::size_t j = 0; j < hidden; ++j) {
            gradients[2][j] += error * a[j];
            const double before = error * weights[2][j] * (1 - a[j] * a[j]);
            gradients[1][j] += before;
            for (std::size_t i = 0; i < 3; ++i) gradients[0][3 * j + i] += before * x[i];
        }
        return error * error;
    }

    void step(double lr) {
        for (std::size_t p = 0; p < weights.size(); ++p) {
            for (std::size_t i = 0; i < weights[p].size(); ++i) weights[p][i] -= lr * gradients[p][i];
        }
    }

    void scale_gradients(double factor) {
        for (auto& gradient : gradients) {
            for (double& g : gradient) g *= factor;
        }
    }
};

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    {
        Domain domain(MPI_COMM_WORLD);
        Net net(domain.rank);
        dptk::ProcessGroup group = dptk::MpiCommunicator(dptk::MpiTransport(domain.comm));
        dptk::DistributedDataParallel ddp(group, net.weights, net.gradients);

        for (int step = 1; step <= 200; ++step) {
            domain.exchange_borders();
            std::vector<double> next = domain.heat;
            double loss = 0;
            net.scale_gradients(0);
            for (int i = 1; i <= domain.cells; ++i) {
                next[static_cast<std::size_t>(i)] = domain.next(i);
                loss += net.learn(domain.heat.data() + i - 1, domain.next(i));
            }
            domain.heat = next;
            net.scale_gradients(1.0 / domain.cells);
            ddp.synchronize(static_cast<std::size_t>(domain.cells));
            net.step(0.2);

            MPI_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_DOUBLE, MPI_SUM, domain.comm);
            if (domain.rank == 0 && step % 50 == 0) std::printf("step %d: loss %.8f\n", step, loss / 1001);
        }
    }
    MPI_Finalize();
}
