/// Umbrella header that makes a program's own training loop data-parallel: process groups, the distributed
/// sampler, and DistributedDataParallel. It needs only the standard library, and the libraries of the
/// transports whose DPTK_WITH_* macros are defined.
#pragma once

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/init.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/comm/registry.hpp"
#include "dptk/comm/self.hpp"
#include "dptk/comm/thread.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/log.hpp"
#include "dptk/core/version.hpp"
#include "dptk/data/batch_sampler.hpp"
#include "dptk/data/distributed_sampler.hpp"
#include "dptk/ddp/distributed_data_parallel.hpp"

#ifdef DPTK_WITH_MPI
#include "dptk/comm/mpi.hpp"
#endif
#ifdef DPTK_WITH_GLOO
#include "dptk/comm/gloo.hpp"
#endif
#ifdef DPTK_WITH_CUDA
#include "dptk/comm/staged.hpp"
#include "dptk/core/cuda.hpp"
#endif
#ifdef DPTK_WITH_NCCL
#include "dptk/comm/nccl.hpp"
#endif
