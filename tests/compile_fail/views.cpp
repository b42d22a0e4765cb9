#include <dptk/ddp.hpp>

#include <span>
#include <string>
#include <string_view>
#include <vector>

void gather(dptk::ProcessGroup& group, const std::string& name, std::vector<float>& values) {
#ifdef MISTAKE
    std::vector<std::span<float>> parts = {values};
    static_cast<void>(group.all_gather_value(std::string_view(name)));
#else
    std::vector<float>& parts = values;
    static_cast<void>(group.all_gather_value(name.size()));
#endif
    group.broadcast(parts);
}
