// The bodies of dptk over Gloo. Compiled once where DPTK_SEPARATE_COMPILATION is defined: docs/installing.md.
#include "separate_compilation.hpp"

#include "dptk/comm/gloo.ipp"
#include "dptk/comm/gloo_device.ipp"
#include "dptk/comm/gloo_mesh.ipp"
#include "dptk/comm/gloo_messages.ipp"
#include "dptk/comm/gloo_transport.ipp"
#include "dptk/comm/gloo_waits.ipp"
