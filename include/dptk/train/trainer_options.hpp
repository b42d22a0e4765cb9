/// The options of a Trainer: epochs, batch size, optimizer, sample order, communication and GPU settings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/data/transforms/image_transforms.hpp"
#include "dptk/ddp/comm_hook.hpp"
#include "dptk/ddp/options.hpp"
#include "dptk/optim/adam.hpp"
#include "dptk/optim/sgd.hpp"

namespace DPTK_NAMESPACE {

/// The optimizers of a Trainer.
enum class OptimizerKind {
    sgd,   ///< SGD, with TrainerOptions::sgd.
    adam,  ///< Adam, with TrainerOptions::adam.
    adamw  ///< AdamW, with TrainerOptions::adam.
};

/// A factor of the learning rate of the parameters whose names match a pattern.
struct LearningRateFactor {
    std::string pattern;  ///< As in TrainerOptions::freeze.
    double factor = 1;    ///< Not negative.
};

/// Options of a Trainer. They must be equal on all ranks unless their comment says otherwise.
struct TrainerOptions {
    int epochs = 10;  ///< The number of epochs of fit(); train_epoch() runs one.
    /// The number of samples per step and rank, or with reproducible shards, per step and shard.
    std::size_t batch_size = 32;
    /// The number of batches per step and rank, which are computed one after the other, and whose gradients
    /// are added, each weighted by its number of samples: without batch norms, a step equals one with a batch
    /// of `accumulate` times the size, in less memory. Only for networks in host memory, and not together
    /// with reproducible shards.
    std::size_t accumulate = 1;
    OptimizerKind optimizer = OptimizerKind::sgd;  ///< Which of the following two has its options.
    SGDOptions sgd = {.lr = 0.01};                 ///< Options of SGD.
    AdamOptions adam = {};                         ///< Options of Adam and AdamW.
    /// Patterns of the names of parameters that keep their values, such as "layer1.*": `*` stands for any
    /// characters, and `?` for one. The optimizer, its weight decay and DDP leave these parameters out, and a
    /// batch norm whose parameters are all frozen uses and keeps its running statistics: see
    /// Network::set_frozen(). Only for networks in host memory.
    std::vector<std::string> freeze = {};
    /// Factors of the learning rate, such as {{"fc.*", 10}}; schedules apply as well. If several patterns
    /// match a parameter, the last one counts. Only for networks in host memory.
    std::vector<LearningRateFactor> lr_factors = {};
    /// Whether each rank steps only its part of the parameters, and averages their gradients meanwhile, with
    /// the same results: see FusedStep. FusedStep::automatic also asks that no callback reads averages; with
    /// FusedStep::yes such callbacks are an error. Only for models in host memory without a make_ddp(), and
    /// not together with a comm hook or reproducible shards.
    FusedStep fused_step = FusedStep::automatic;
    /// Whether each rank keeps only its part of the optimizer's state, and steps only its part of the
    /// parameters: see ShardedOptimizer. Callbacks then see no averaged gradients. Only for models in host
    /// memory without a make_ddp(), and not together with a comm hook or reproducible shards.
    bool shard_optimizer = false;
    /// The part of the target that is spread evenly over all classes, in [0, 1), in training and evaluation:
    /// see nn::CrossEntropyOptions. Only for networks in host memory.
    double label_smoothing = 0;
    /// The seed of the order of the samples.
    std::uint64_t seed = 0;
    /// The factor that values of one byte are multiplied by, such as the pixels of an ImageDataset.
    double pixel_scale = 1.0 / 255;
    /// The transforms of the images in train_epoch(), for samples that begin with an Image. The network gets
    /// the values of Normalize, or without it pixel / 255; pixel_scale is not applied.
    ImageTransforms transform = {};
    /// The transforms of the images in evaluate().
    ImageTransforms evaluation_transform = {};
    /// The number of threads that read samples, as in DataLoaderOptions. Default: 0 for an ImageDataset,
    /// whose batches are only copied, and the default of DataLoader for other datasets. Ranks may have
    /// different values of this option.
    std::optional<std::size_t> workers = std::nullopt;
    /// With Ready::marked, a background thread sends buckets while backward still runs: useful if the
    /// thread has a CPU core of its own.
    Ready ready = Ready::at_synchronize;
    /// How buckets are summed: see DistributedDataParallel::set_comm_hook().
    std::shared_ptr<CommHook> comm_hook = nullptr;
    /// The number of shards that make up each step's batch. If not 0, results have the same bits for every
    /// number of ranks: see ReproducibleDataParallel. If 0, DistributedDataParallel is used. Only for
    /// networks in host memory.
    std::size_t reproducible_shards = 0;
    /// For networks on a GPU: whether a step with a full batch is captured into a CUDA graph, after a few
    /// other steps. The graph is launched for subsequent steps with full batches, which leaves the host
    /// almost no work. With several ranks, graphs require NCCL and one process per rank: while a step is
    /// captured, no other thread may wait for a GPU or allocate GPU memory.
    bool cuda_graph = false;
    /// For networks on a GPU: if true, a dataset is copied to the device, one byte per pixel, when a pass
    /// over it begins, and the two datasets that were used last are kept; they must be ImageDatasets. If
    /// false, each batch is uploaded while the previous one is computed. Ranks may have different values of
    /// this option.
    bool data_on_device = false;
};

}  // namespace DPTK_NAMESPACE
