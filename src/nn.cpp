// Function bodies of nn/ and train/, except the backends that need a library. See separate_compilation.hpp.
#include "separate_compilation.hpp"

#include "dptk/nn/detail/memory_plan.ipp"
#include "dptk/nn/detail/network_structure.ipp"
#include "dptk/nn/graph.ipp"
#include "dptk/nn/models.ipp"
#include "dptk/nn/operations.ipp"
#include "dptk/nn/residual_models.ipp"
#include "dptk/train/detail/labeled_batch.ipp"
#include "dptk/train/detail/parameter_hash.ipp"
#include "dptk/train/detail/png_encoder.ipp"
#include "dptk/train/progress.ipp"
#include "dptk/train/tensorboard_file.ipp"
