// Finds the executable of the program before any rank is started.
#pragma once

#include <string>

namespace run {

/// The path of an executable, or else an error message and the exit status that shells use: 127 if the
/// program is not found, 126 if it cannot be run.
struct FoundProgram {
    std::string path;
    std::string error;
    int exit_status = 0;
};

/// Finds a program by its path, or in PATH if `name` has no slash.
[[nodiscard]] FoundProgram find_program(const std::string& name);

}  // namespace run
