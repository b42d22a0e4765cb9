// What the tests of transports have in common.
#pragma once

#include <dirent.h>
#include <doctest/doctest.h>
#include <unistd.h>
#include <dptk/core/buffer.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace test {

template <class T>
[[nodiscard]] dptk::Buffer buffer(std::vector<T>& data) {
    return {data.data(), data.size(), dptk::dtype_of<T>, {}};
}

/// Kills the process after so many seconds, so that a hang is a failure.
class Alarm {
  public:
    explicit Alarm(unsigned seconds) { ::alarm(seconds); }
    ~Alarm() { ::alarm(0); }
    Alarm(const Alarm&) = delete;
    Alarm& operator=(const Alarm&) = delete;
};

/// Returns the message of the E that fn throws; empty if it does not throw.
template <class E, class Fn>
[[nodiscard]] std::string message_of(Fn&& fn) {
    try {
        fn();
    } catch (const E& error) {
        return error.what();
    }
    return {};
}

/// Returns the number of entries of a folder, such as /proc/self/fd.
[[nodiscard]] inline std::size_t entries_of(const char* folder) {
    std::size_t count = 0;
    DIR* listing = ::opendir(folder);
    REQUIRE(listing != nullptr);
    while (::readdir(listing) != nullptr) ++count;
    ::closedir(listing);
    return count;
}

}  // namespace test
