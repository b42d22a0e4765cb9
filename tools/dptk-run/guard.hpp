// Guard process: if dptk-run is killed, the guard kills the ranks together with their children, and removes
// the temporary files. (When dptk-run dies, the kernel kills the ranks, but not the processes that the ranks
// have started.)
#pragma once

#include <sys/types.h>

#include <string>

namespace run {

class Guard {
  public:
    /// Forks the guard process, which removes `directory` if dptk-run is killed.
    explicit Guard(const std::string& directory);
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

    /// Ends the guard process, which then kills no process and removes no file.
    ~Guard();

    void watch(pid_t rank);
    void forget(pid_t rank);

    [[nodiscard]] pid_t process() const { return process_; }

  private:
    pid_t process_;
    int pipe_;
};

}  // namespace run
