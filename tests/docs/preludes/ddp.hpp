#include <dptk/ddp/distributed_data_parallel.hpp>

// Follows net.hpp: averages the gradients of its network.
// ---
dptk::DistributedDataParallel ddp(group, net.weights, net.gradients);
