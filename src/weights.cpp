// Function bodies of weights/ and train/checkpoint/. See separate_compilation.hpp.
#include "separate_compilation.hpp"

#include "dptk/train/checkpoint/checkpoint.ipp"
#include "dptk/train/checkpoint/checkpoint_folder.ipp"
#include "dptk/train/detail/folder_lock.ipp"
#include "dptk/weights/detail/safetensors_header.ipp"
#include "dptk/weights/load_weights.ipp"
#include "dptk/weights/safetensors.ipp"
#include "dptk/weights/safetensors_writer.ipp"
