// The bodies of dptk over Gloo.
#include "separate_compilation.hpp"

#include "dptk/comm/gloo.ipp"
#include "dptk/comm/gloo_device.ipp"
#include "dptk/comm/gloo_mesh.ipp"
#include "dptk/comm/gloo_messages.ipp"
#include "dptk/comm/gloo_transport.ipp"
#include "dptk/comm/gloo_waits.ipp"
