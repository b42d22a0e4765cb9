// Function bodies of the TCP transport. A file of its own, because a program whose linker takes this object has the
// transport, as if it included <dptk/comm/tcp.hpp>. See separate_compilation.hpp.
#include "separate_compilation.hpp"

#include "dptk/comm/tcp.ipp"
#include "dptk/comm/tcp/connection.ipp"
#include "dptk/comm/tcp/connector.ipp"
#include "dptk/comm/tcp/events.ipp"
#include "dptk/comm/tcp/farewell.ipp"
#include "dptk/comm/tcp/group.ipp"
#include "dptk/comm/tcp/handshake.ipp"
#include "dptk/comm/tcp/header.ipp"
#include "dptk/comm/tcp/mesh.ipp"
#include "dptk/comm/tcp/pending.ipp"
#include "dptk/comm/tcp/transport.ipp"
