#include "host_facts.hpp"

#include <sched.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <set>

#include "parse.hpp"

namespace info {

namespace {

/// The contents of the file; empty if it cannot be read.
[[nodiscard]] std::string read_file(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

[[nodiscard]] std::string first_line(const std::string& contents) {
    return contents.substr(0, contents.find('\n'));
}

/// The CPU affinity mask. Tries larger sets until one fits, because sched_getaffinity rejects a set that is
/// smaller than the kernel's.
[[nodiscard]] std::vector<int> allowed_cores() {
    for (int capacity = 1024; capacity <= 1 << 20; capacity *= 2) {
        cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(capacity));
        if (set == nullptr) break;
        const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(capacity));
        CPU_ZERO_S(bytes, set);
        std::vector<int> cores;
        const bool known = sched_getaffinity(0, bytes, set) == 0;
        for (int core = 0; known && core < capacity; ++core) {
            if (CPU_ISSET_S(static_cast<std::size_t>(core), bytes, set)) cores.push_back(core);
        }
        CPU_FREE(set);
        if (known) return cores;
    }
    return {};
}

/// Calls `visit` with the folders of this process's control group and of all its ancestors, since each may
/// have a limit. `controller` is "" for the unified hierarchy of cgroup version 2. `mounts` are the folders
/// where the hierarchy may be mounted.
template <class Visit>
void visit_cgroup_folders(const std::vector<std::pair<std::string, std::string>>& paths,
                          const std::string& controller, std::initializer_list<const char*> mounts,
                          Visit&& visit) {
    for (const auto& [name, path] : paths) {
        if (name != controller) continue;
        for (const std::string mount : mounts) {
            for (std::string below = path; !below.empty(); below.resize(below.rfind('/'))) {
                visit(mount + (below == "/" ? "" : below));
            }
            visit(mount);
        }
    }
}

template <class Number>
void keep_smaller(std::optional<Number>& limit, const std::optional<Number>& found) {
    if (found) limit = limit ? std::min(*limit, *found) : *found;
}

void find_cgroup_limits(HostFacts& host) {
    const auto paths = parse_cgroup_paths(read_file("/proc/self/cgroup"));
    std::set<std::string> distinct;
    for (const auto& [controller, path] : paths) distinct.insert(path);
    for (const std::string& path : distinct) host.cgroup += (host.cgroup.empty() ? "" : " ") + path;
    visit_cgroup_folders(
        paths, "", {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}, [&](const std::string& folder) {
            keep_smaller(host.cpu_limit, parse_cpu_max(read_file(folder + "/cpu.max")));
            keep_smaller(host.memory_limit, parse_memory_max(read_file(folder + "/memory.max")));
        });
    visit_cgroup_folders(
        paths, "cpu", {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"}, [&](const std::string& folder) {
            keep_smaller(host.cpu_limit, parse_cpu_max(first_line(read_file(folder + "/cpu.cfs_quota_us")) +
                                                       " " + read_file(folder + "/cpu.cfs_period_us")));
        });
    visit_cgroup_folders(paths, "memory", {"/sys/fs/cgroup/memory"}, [&](const std::string& folder) {
        keep_smaller(host.memory_limit, parse_memory_max(read_file(folder + "/memory.limit_in_bytes")));
    });
    // Version 1 of cgroup represents "no limit" by a number larger than the memory.
    if (host.memory_limit && *host.memory_limit >= host.memory_total) host.memory_limit.reset();
}

void find_shared_memory(HostFacts& host) {
    struct statvfs found = {};
    if (statvfs("/dev/shm", &found) != 0) return;
    host.shm_size = static_cast<std::uint64_t>(found.f_blocks) * found.f_frsize;
    host.shm_free = static_cast<std::uint64_t>(found.f_bavail) * found.f_frsize;
}

}  // namespace

HostFacts find_host_facts() {
    HostFacts host;
    struct utsname names = {};
    uname(&names);
    host.name = names.nodename;
    host.kernel = std::string(names.sysname) + " " + names.release;
    host.boot_id = first_line(read_file("/proc/sys/kernel/random/boot_id"));
    std::string release = read_file("/etc/os-release");
    if (release.empty()) release = read_file("/usr/lib/os-release");
    host.system = parse_os_release(release);
    host.cpu = parse_cpu_model(read_file("/proc/cpuinfo"));
    if (host.cpu.empty()) host.cpu = names.machine;
    host.cores = allowed_cores();
    host.cores_online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
    const std::string memory = read_file("/proc/meminfo");
    host.memory_total = parse_meminfo(memory, "MemTotal").value_or(0);
    host.memory_available = parse_meminfo(memory, "MemAvailable").value_or(0);
    find_cgroup_limits(host);
    find_shared_memory(host);
    return host;
}

}  // namespace info
