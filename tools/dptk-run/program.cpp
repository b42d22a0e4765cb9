#include "program.hpp"

#include <dptk/core/detail/text.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace run {

namespace {

using dptk::detail::text;

FoundProgram look_at(const std::string& path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) {
        const int exit_status = errno == EACCES ? 126 : 127;
        return {"", text("cannot run ", path, ": ", std::strerror(errno)), exit_status};
    }
    if (S_ISDIR(status.st_mode)) return {"", text("cannot run ", path, ": it is a directory"), 126};
    if (access(path.c_str(), X_OK) != 0) {
        return {"", text("cannot run ", path, ": it is not executable"), 126};
    }
    return {path, "", 0};
}

}  // namespace

FoundProgram find_program(const std::string& name) {
    if (name.find('/') != std::string::npos) return look_at(name);
    if (name.empty()) return {"", "expected the name of a program, got an empty argument", 127};

    const char* const variable = std::getenv("PATH");
    const std::string_view path = variable != nullptr ? variable : "/bin:/usr/bin";
    FoundProgram best{"", text("cannot run ", name, ": not found in PATH"), 127};
    for (std::size_t begin = 0; begin <= path.size();) {
        const std::size_t end = std::min(path.find(':', begin), path.size());
        const std::string directory = end == begin ? "." : std::string(path.substr(begin, end - begin));
        FoundProgram found = look_at(text(directory, "/", name));
        if (found.exit_status == 0) return found;
        if (found.exit_status == 126 && best.exit_status == 127) best = found;
        begin = end + 1;
    }
    if (best.exit_status == 127 && access(name.c_str(), F_OK) == 0) {
        best.error += text("; to run the file in this directory, use ./", name);
    }
    return best;
}

}  // namespace run
