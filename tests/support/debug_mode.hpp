// DebugMode sets DPTK_DEBUG in a scope.
#pragma once

#include <cstdlib>
#include <string>

namespace test {

/// Sets DPTK_DEBUG during its lifetime: groups that are created meanwhile check their calls if it is
/// "detail".
class DebugMode {
  public:
    explicit DebugMode(const char* level = "detail") { ::setenv("DPTK_DEBUG", level, 1); }
    ~DebugMode() {
        if (before_.empty()) {
            ::unsetenv("DPTK_DEBUG");
        } else {
            ::setenv("DPTK_DEBUG", before_.c_str(), 1);
        }
    }
    DebugMode(const DebugMode&) = delete;
    DebugMode& operator=(const DebugMode&) = delete;

  private:
    std::string before_ = std::getenv("DPTK_DEBUG") == nullptr ? "" : std::getenv("DPTK_DEBUG");
};

}  // namespace test
