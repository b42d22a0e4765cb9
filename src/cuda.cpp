// The bodies of dptk on devices.
#include "separate_compilation.hpp"

#include "dptk/comm/staged.ipp"
#include "dptk/comm/staged_devices.ipp"
#include "dptk/comm/staged_transport.ipp"
#include "dptk/core/cuda/copy.ipp"
#include "dptk/core/cuda/device.ipp"
#include "dptk/core/cuda/device_lane.ipp"
#include "dptk/core/cuda/device_math.ipp"
#include "dptk/core/cuda/error.ipp"
#include "dptk/core/cuda/event.ipp"
#include "dptk/core/cuda/graph.ipp"
#include "dptk/core/cuda/stream.ipp"
