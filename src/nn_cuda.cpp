// Function bodies of nn/cuda/, optim/cuda/ and train/detail/cuda/ (networks on GPUs). See
// separate_compilation.hpp.
#include "separate_compilation.hpp"

#include "dptk/nn/cuda/backend.ipp"
#include "dptk/nn/cuda/context.ipp"
#include "dptk/nn/cuda/layer.ipp"
#include "dptk/nn/cuda/loss.ipp"
#include "dptk/nn/cuda/parameter.ipp"
#include "dptk/optim/cuda/fused_optimizers.ipp"
#include "dptk/train/detail/cuda/batches.ipp"
