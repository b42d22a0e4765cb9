// Finds the program that the ranks are to run, before any of them is started.
#pragma once

#include <string>

namespace run {

/// The path to run or, where there is none, a sentence and the exit status that shells use: 127 for a program
/// that is not found, 126 for one that cannot be run.
struct FoundProgram {
    std::string path;
    std::string error;
    int exit_status = 0;
};

/// Looks in PATH for a name without a slash.
[[nodiscard]] FoundProgram find_program(const std::string& name);

}  // namespace run
