// Measures the overhead of dptk over NCCL: an out-of-place all_reduce through a communicator, compared with
// the raw call on a communicator in the same, non-blocking mode. Uses one thread per GPU. Prints medians of
// alternating blocks and of their ratios.
//   nccl_overhead
#include <dptk/comm/nccl.hpp>
#include <dptk/comm/thread.hpp>
#include <dptk/core/cuda.hpp>

#include <cstdio>
#include <vector>

#include "measure.hpp"

namespace {

using Elements = dptk::cuda::DeviceBuffer<float>;

/// A raw NCCL communicator over the same ranks.
class RawNccl {
  public:
    explicit RawNccl(dptk::ProcessGroup& group) {
        ncclUniqueId id = {};
        if (group.rank() == 0) check(ncclGetUniqueId(&id));
        group.broadcast(id.internal);
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        settle(ncclCommInitRankConfig(&comm_, group.size(), id, group.rank(), &config));
    }
    ~RawNccl() {
        settle(ncclCommFinalize(comm_));
        check(ncclCommDestroy(comm_));
    }
    RawNccl(const RawNccl&) = delete;
    RawNccl& operator=(const RawNccl&) = delete;

    void all_reduce(const Elements& from, Elements& to, const dptk::cuda::Stream& stream) {
        settle(ncclAllReduce(from.data(), to.data(), from.size(), ncclFloat32, ncclSum, comm_, stream.get()));
    }

  private:
    static void check(ncclResult_t result) {
        if (result != ncclSuccess) throw dptk::BackendError(ncclGetErrorString(result));
    }
    void settle(ncclResult_t result) {
        while (result == ncclInProgress) check(ncclCommGetAsyncError(comm_, &result));
        check(result);
    }

    ncclComm_t comm_ = nullptr;
};

void measure(dptk::ProcessGroup& threads) {
    dptk::cuda::set_device(threads.rank());
    RawNccl raw(threads);
    dptk::NcclCommunicator communicator = dptk::nccl_communicator(threads);
    dptk::cuda::Stream stream;
    for (const std::size_t mebibytes : {1U, 4U, 16U, 64U, 256U}) {
        Elements from((mebibytes << 20) / sizeof(float));
        Elements to(from.size());
        dptk::cuda::check(cudaMemset(from.data(), 0, mebibytes << 20), "cudaMemset");
        const int calls = mebibytes <= 4 ? 200 : 20;
        const auto block = [&](auto&& call) {
            stream.synchronize();
            threads.barrier();
            return bench::microseconds([&] {
                       for (int i = 0; i < calls; ++i) call();
                       stream.synchronize();
                   }) /
                   calls;
        };
        std::vector<double> own;
        std::vector<double> peer;
        std::vector<double> ratios;
        for (int round = 0; round < 30; ++round) {
            peer.push_back(block([&] { raw.all_reduce(from, to, stream); }));
            own.push_back(
                block([&] { communicator.all_reduce(from, to, dptk::ReduceOp::sum, {.stream = stream}); }));
            ratios.push_back(own.back() / peer.back());
        }
        if (threads.rank() != 0) continue;
        std::printf("nccl_allreduce_%zu_MiB_%d %.1f us | raw NCCL %.1f us | ratio %.3f\n", mebibytes,
                    threads.size(), bench::median(own), bench::median(peer), bench::median(ratios));
    }
}

}  // namespace

int main() {
    if (dptk::cuda::device_count() == 0) {
        std::puts("SKIPPED: no CUDA device");
        return 0;
    }
    dptk::launch_threads(dptk::cuda::device_count(), measure);
}
