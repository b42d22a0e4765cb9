// The environment variables of the ranks.
#pragma once

#include <dptk/control/launch/detail/rank_environment.hpp>

#include <string>
#include <vector>

namespace run {

/// A complete environment in the format of execve: entries NAME=VALUE.
class Environment {
  public:
    /// Copies the environment of this process, except the variables that other launchers have set.
    Environment();

    void set(const std::vector<dptk::detail::EnvironmentVariable>& variables);

    /// Returns the value of a variable, or an empty string.
    [[nodiscard]] std::string value(const std::string& name) const;

    [[nodiscard]] bool contains(const std::string& name) const;

    /// Returns pointers into this object, with a null pointer at the end.
    [[nodiscard]] std::vector<char*> pointers();

  private:
    std::vector<std::string> entries_;
};

}  // namespace run
