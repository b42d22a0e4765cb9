// A translation unit that includes no transport.
#include <dptk/ddp.hpp>

int world_size() {
    dptk::ProcessGroup group = dptk::init_process_group();
    return group.all_reduce_value(1);
}
