// Function bodies of the Gloo transport. See separate_compilation.hpp.
#include "separate_compilation.hpp"

#include "dptk/comm/gloo.ipp"
#include "dptk/comm/gloo/mesh.ipp"
#include "dptk/comm/gloo/messages.ipp"
#include "dptk/comm/gloo/transport.ipp"
