// Function bodies of the Gloo transport. See separate_compilation.hpp.
#include "separate_compilation.hpp"

#include "dptk/comm/gloo.ipp"
#include "dptk/comm/gloo/cancellation.ipp"
#include "dptk/comm/gloo/device.ipp"
#include "dptk/comm/gloo/inbox.ipp"
#include "dptk/comm/gloo/mesh.ipp"
#include "dptk/comm/gloo/messages.ipp"
#include "dptk/comm/gloo/transport.ipp"
