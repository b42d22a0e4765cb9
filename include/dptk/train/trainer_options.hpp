/// What a Trainer can be told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "dptk/core/config.hpp"
#include "dptk/ddp/comm_hook.hpp"
#include "dptk/ddp/options.hpp"
#include "dptk/optim/sgd.hpp"

namespace DPTK_NAMESPACE {

/// Equal on all ranks, where nothing else is said.
struct TrainerOptions {
    int epochs = 10;  ///< How many are planned, for what is shown meanwhile; train_epoch makes one.
    /// Per rank; per shard, where there are reproducible_shards.
    std::size_t batch_size = 32;
    SgdOptions sgd = {.lr = 0.01};  ///< Of the optimizer.
    /// Of the order of the samples.
    std::uint64_t seed = 0;
    /// What a pixel is multiplied by.
    double pixel_scale = 1.0 / 255;
    /// Under Ready::marked, buckets travel on a thread of their own while backward goes on: worth it where
    /// there is a core for that thread.
    Ready ready = Ready::at_synchronize;
    /// How buckets are summed: see set_comm_hook of DistributedDataParallel. The same on all ranks.
    std::shared_ptr<CommHook> comm_hook = nullptr;
    /// In so many pieces each step's batch is computed, for the same bits at every number of ranks: see
    /// ReproducibleDataParallel. 0: by DistributedDataParallel. For networks in host memory.
    std::size_t reproducible_shards = 0;
    /// For networks on a GPU: after a few steps, one of a full batch is captured into a CUDA graph, and
    /// launched as a whole from then on, which leaves the host next to nothing to do. The same on all
    /// ranks. Several ranks need NCCL, and a process each: while a step is captured, no other thread may wait
    /// for a GPU or allocate its memory.
    bool cuda_graph = false;
    /// For networks on a GPU: datasets are copied there when a pass over them begins, as pixels of a byte,
    /// and the last two stay. Otherwise batches travel, each while the one before is computed. Ranks may
    /// differ in this.
    bool data_on_device = false;
};

}  // namespace DPTK_NAMESPACE
