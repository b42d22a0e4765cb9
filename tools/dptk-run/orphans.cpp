#include "orphans.hpp"

#include <dirent.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace run {

namespace {

/// Whether /proc/PID/stat lists the process as a child of this one that has not ended. The process name, in
/// parentheses, may contain any character, so parsing starts at the last ')'.
bool is_living_child(pid_t process) {
    const std::string path = "/proc/" + std::to_string(process) + "/stat";
    std::FILE* const file = std::fopen(path.c_str(), "re");
    if (file == nullptr) return false;
    char line[512] = "";
    const std::size_t size = std::fread(line, 1, sizeof line - 1, file);
    std::fclose(file);
    line[size] = '\0';
    const char* const name_end = std::strrchr(line, ')');
    char state = 'Z';
    int parent = 0;
    if (name_end == nullptr || std::sscanf(name_end + 1, " %c %d", &state, &parent) != 2) return false;
    return parent == getpid() && state != 'Z' && state != 'X';
}

}  // namespace

namespace {

/// Children that this process had before it became dptk-run, for example process substitutions of a shell.
std::vector<pid_t>& inherited() {
    static std::vector<pid_t> children;
    return children;
}

}  // namespace

void adopt_orphans() {
    inherited() = find_orphans({});
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

std::vector<pid_t> find_orphans(const std::vector<pid_t>& known) {
    std::vector<pid_t> orphans;
    DIR* const processes = opendir("/proc");
    if (processes == nullptr) return orphans;
    while (const dirent* const entry = readdir(processes)) {
        const pid_t process = std::atoi(entry->d_name);
        const auto is_in = [&](const std::vector<pid_t>& list) {
            return std::ranges::find(list, process) != list.end();
        };
        if (process > 0 && !is_in(known) && !is_in(inherited()) && is_living_child(process)) {
            orphans.push_back(process);
        }
    }
    closedir(processes);
    return orphans;
}

}  // namespace run
