// A process that has no descriptors left.
#pragma once

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

namespace test {

/// As long as the object exists, this process can open no more files.
class NoMoreFiles {
  public:
    NoMoreFiles() {
        const int next = ::dup(STDIN_FILENO);
        REQUIRE(next >= 0);
        ::close(next);
        ::getrlimit(RLIMIT_NOFILE, &before_);
        rlimit few = before_;
        few.rlim_cur = static_cast<rlim_t>(next);
        ::setrlimit(RLIMIT_NOFILE, &few);
    }
    ~NoMoreFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }
    NoMoreFiles(const NoMoreFiles&) = delete;
    NoMoreFiles& operator=(const NoMoreFiles&) = delete;

  private:
    rlimit before_{};
};

}  // namespace test
