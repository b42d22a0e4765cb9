#include "devices.hpp"

#include <dirent.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string_view>
#include <thread>

namespace run {

namespace {

bool is_gpu(std::string_view name) {
    constexpr std::string_view prefix = "nvidia";
    if (!name.starts_with(prefix) || name.size() == prefix.size()) return false;
    return name.find_first_not_of("0123456789", prefix.size()) == std::string_view::npos;
}

int count_gpu_devices(const char* device_dir) {
    DIR* const directory = opendir(device_dir);
    if (directory == nullptr) return 0;
    int gpus = 0;
    while (const dirent* const entry = readdir(directory)) gpus += is_gpu(entry->d_name) ? 1 : 0;
    closedir(directory);
    return gpus;
}

/// Whether CUDA accepts this entry of CUDA_VISIBLE_DEVICES: an existing index, or the UUID of a GPU or MIG
/// device, which cannot be checked here.
bool is_visible(std::string_view entry, int gpus) {
    if (entry.starts_with("GPU-") || entry.starts_with("MIG-")) return true;
    int index = -1;
    const auto [end, status] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
    return status == std::errc{} && index >= 0 && index < gpus;
}

}  // namespace

int count_cores() {
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0) return CPU_COUNT(&cores);
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int count_gpus(const char* device_dir, const char* visible_devices) {
    const int gpus = count_gpu_devices(device_dir);
    if (visible_devices == nullptr || gpus == 0) return gpus;
    int visible = 0;
    std::string_view rest = visible_devices;
    while (!rest.empty()) {
        const std::size_t comma = std::min(rest.find(','), rest.size());
        if (!is_visible(rest.substr(0, comma), gpus)) break;  // CUDA ignores the entries after an invalid one
        ++visible;
        rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
    return visible;
}

}  // namespace run
