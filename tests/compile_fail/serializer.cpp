#include <dptk/ddp.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

#ifdef MISTAKE
struct Layer {
    std::string name;
};
#else
using Layer = std::pair<std::string, int>;
#endif

void broadcast(dptk::ProcessGroup& group, std::map<std::string, std::vector<Layer>>& layers) {
    group.broadcast_object(layers);
}
