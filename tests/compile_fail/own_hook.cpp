#include <dptk/ddp.hpp>

void set(dptk::DistributedDataParallel& ddp) {
#ifdef MISTAKE
    ddp.set_comm_hook(dptk::comm_hook([](dptk::HookBucket&) {}));
#else
    ddp.set_comm_hook(dptk::comm_hook([](dptk::ProcessGroup&, dptk::HookBucket&) {}));
#endif
}
