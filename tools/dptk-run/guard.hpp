// Guard process: if dptk-run is killed, it kills the ranks together with their children, and removes the
// temporary files. (The kernel kills the ranks themselves when dptk-run dies, but not the processes that they
// have started.)
#pragma once

#include <sys/types.h>

#include <string>

namespace run {

class Guard {
  public:
    /// Forks the guard process, which will remove `directory`.
    explicit Guard(const std::string& directory);
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

    /// Ends the guard process. It then kills and removes nothing.
    ~Guard();

    void watch(pid_t rank);
    void forget(pid_t rank);

    [[nodiscard]] pid_t process() const { return process_; }

  private:
    pid_t process_;
    int pipe_;
};

}  // namespace run
