// Function bodies of core/cuda/ and comm/staged/ (device memory). See separate_compilation.hpp.
#include "separate_compilation.hpp"

#include "dptk/comm/staged.ipp"
#include "dptk/comm/staged/devices.ipp"
#include "dptk/comm/staged/transport.ipp"
#include "dptk/core/cuda/copy.ipp"
#include "dptk/core/cuda/detail/device_lane.ipp"
#include "dptk/core/cuda/detail/device_math.ipp"
#include "dptk/core/cuda/device.ipp"
#include "dptk/core/cuda/error.ipp"
#include "dptk/core/cuda/event.ipp"
#include "dptk/core/cuda/graph.ipp"
#include "dptk/core/cuda/stream.ipp"
