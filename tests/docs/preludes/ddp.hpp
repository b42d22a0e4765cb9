#include <dptk/ddp/distributed_data_parallel.hpp>

// Behind net.hpp: its gradients are averaged.
// ---
dptk::DistributedDataParallel ddp(group, net.weights, net.gradients);
