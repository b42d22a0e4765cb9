// The environment that ranks are started with.
#pragma once

#include <dptk/control/launch/detail/rank_environment.hpp>

#include <string>
#include <vector>

namespace run {

/// A whole environment as execve takes it: entries NAME=VALUE.
class Environment {
  public:
    /// This process's own, without what other launchers left in it.
    Environment();

    void set(const std::vector<dptk::detail::EnvironmentVariable>& variables);

    [[nodiscard]] bool contains(const std::string& name) const;

    /// Pointers into this object, with a null pointer at the end.
    [[nodiscard]] std::vector<char*> pointers();

  private:
    std::vector<std::string> entries_;
};

}  // namespace run
