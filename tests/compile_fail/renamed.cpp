#include <dptk/ddp.hpp>

#include <string>

void broadcast(dptk::ProcessGroup& group, std::string& name) {
#ifdef MISTAKE
    dptk::broadcast_object(group, name);
#else
    group.broadcast_object(name);
#endif
}
