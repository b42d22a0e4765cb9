/// CUDA devices, streams, events, graphs, memory and copies, as owning classes and views.
#pragma once

#include "dptk/core/cuda/copy.hpp"
#include "dptk/core/cuda/device.hpp"
#include "dptk/core/cuda/error.hpp"
#include "dptk/core/cuda/event.hpp"
#include "dptk/core/cuda/graph.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/cuda/stream.hpp"
