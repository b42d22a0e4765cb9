// The program test_launch: its first argument names one of these commands, each in a file of its own.
#pragma once

#include <string>
#include <vector>

namespace launch {

/// What follows the command's name.
using Words = std::vector<std::string>;

/// Registers a command, whose result is the exit status of the program.
struct Command {
    Command(const std::string& name, int (*run)(const Words&));
};

}  // namespace launch
