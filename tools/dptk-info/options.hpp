// The command line of dptk-info.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace info {

enum class Effort : std::uint8_t { none, quick, full };

struct Options {
    bool json = false;
    Effort tests = Effort::full;
};

/// What came of the command line: options to run with, or a text to print and an exit status to end with.
struct ParsedOptions {
    std::optional<Options> options;
    std::string text;
    int exit_status = 0;
};

[[nodiscard]] ParsedOptions parse_options(int argc, char** argv);

}  // namespace info
