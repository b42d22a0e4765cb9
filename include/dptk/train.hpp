/// Umbrella header for training with dptk's own neural networks: ddp.hpp, layers, optimizers and the Trainer.
/// Networks run on plain loops (nn::Reference), on oneDNN if DPTK_WITH_ONEDNN is defined, and on GPUs if
/// DPTK_WITH_CUDNN is defined. oneDNN's header is not included in sources that nvcc compiles, since nvcc
/// cannot compile it.
#pragma once

#include "dptk/data/image_dataset.hpp"
#include "dptk/ddp.hpp"
#include "dptk/nn/loss.hpp"
#include "dptk/nn/models.hpp"
#include "dptk/nn/network.hpp"
#include "dptk/nn/reference/backend.hpp"
#include "dptk/optim/sgd.hpp"
#include "dptk/train/callbacks/average_weights.hpp"
#include "dptk/train/callbacks/class_report.hpp"
#include "dptk/train/callbacks/early_stopping.hpp"
#include "dptk/train/callbacks/html_report.hpp"
#include "dptk/train/callbacks/learning_rate.hpp"
#include "dptk/train/callbacks/metrics_log.hpp"
#include "dptk/train/callbacks/misclassified.hpp"
#include "dptk/train/callbacks/progress_bar.hpp"
#include "dptk/train/callbacks/tensorboard.hpp"
#include "dptk/train/detail/parameter_hash.hpp"
#include "dptk/train/progress.hpp"
#include "dptk/train/stop_signals.hpp"
#include "dptk/train/tensorboard_file.hpp"
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
