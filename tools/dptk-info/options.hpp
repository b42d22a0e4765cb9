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
    /// The running job to describe; empty: describe this machine and these ranks.
    std::string job = {};
};

/// Result of parsing the command line: options to run with, or else a text to print and an exit status.
struct ParsedOptions {
    std::optional<Options> options;
    std::string text;
    int exit_status = 0;
};

[[nodiscard]] ParsedOptions parse_options(int argc, char** argv);

}  // namespace info
