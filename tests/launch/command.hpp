// The program test_launch: its first argument names one of these commands, each in a file of its own.
#pragma once

#include <string>
#include <vector>

namespace launch {

/// The arguments of a command.
using Words = std::vector<std::string>;

/// Registers a command. `run` returns the exit status of the program.
struct Command {
    Command(const std::string& name, int (*run)(const Words&));
};

}  // namespace launch
