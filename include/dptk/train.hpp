/// Everything for training with dptk's own networks: groups, sampler and DistributedDataParallel, layers,
/// optimizers and the Trainer. Networks run on plain loops (nn::Reference), where DPTK_WITH_ONEDNN is defined
/// on oneDNN (not in what nvcc compiles, which fails on oneDNN's header), and where DPTK_WITH_CUDNN is, on
/// GPUs.
#pragma once

#include "dptk/data/image_dataset.hpp"
#include "dptk/ddp.hpp"
#include "dptk/nn/loss.hpp"
#include "dptk/nn/models.hpp"
#include "dptk/nn/reference/backend.hpp"
#include "dptk/nn/sequential.hpp"
#include "dptk/optim/sgd.hpp"
#include "dptk/train/detail/parameter_hash.hpp"
#include "dptk/train/progress.hpp"
#include "dptk/train/trainer.hpp"
#include "dptk/train/trainer_options.hpp"

#if defined(DPTK_WITH_ONEDNN) && !defined(__CUDACC__)
#include "dptk/nn/cpu/backend.hpp"
#include "dptk/nn/cpu/threads.hpp"
#endif
#ifdef DPTK_WITH_CUDNN
#include "dptk/nn/cuda/backend.hpp"
#include "dptk/train/detail/cuda/computation.hpp"
#endif
