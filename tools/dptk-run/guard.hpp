// A second, silent process that outlives a dptk-run which is killed, and then kills the ranks with all their
// children and removes the temporary files. (The ranks themselves would die with dptk-run anyhow, but not
// what they have started.)
#pragma once

#include <sys/types.h>

#include <string>

namespace run {

class Guard {
  public:
    /// Forks. `directory` is what to remove.
    explicit Guard(const std::string& directory);
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

    /// Ends the guard, which then does nothing.
    ~Guard();

    void watch(pid_t rank);
    void forget(pid_t rank);

    [[nodiscard]] pid_t process() const { return process_; }

  private:
    pid_t process_;
    int pipe_;
};

}  // namespace run
