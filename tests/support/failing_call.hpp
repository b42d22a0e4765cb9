// Makes calls of the operating system fail in programs that are linked with failing_calls.cpp.
#pragma once

#include <dptk/core/detail/errno_text.hpp>

#include <stdlib.h>  // setenv

#include <cerrno>
#include <exception>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <map>
#include <string>
#include <utility>

namespace test {

/// The errors of a full or broken system, with their numbers.
inline const std::pair<const char*, int> system_errors[] = {
    {"EACCES", EACCES}, {"ESTALE", ESTALE}, {"EMFILE", EMFILE}, {"EIO", EIO}, {"ENOMEM", ENOMEM}};

/// Until the end of the scope, calls of this kind (open, read, write, fsync, rename) fail for files whose
/// path contains `path`.
class FailingCall {
  public:
    FailingCall(const std::string& function, const std::string& error, const std::string& path) {
        ::setenv("DPTK_TEST_FAIL", (function + ':' + error + ':' + path).c_str(), 1);
    }
    ~FailingCall() { ::unsetenv("DPTK_TEST_FAIL"); }
    FailingCall(const FailingCall&) = delete;
    FailingCall& operator=(const FailingCall&) = delete;
};

/// Returns the content of each file in a folder, by its path; empty for folders.
[[nodiscard]] inline std::map<std::string, std::string> files_in(const std::filesystem::path& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
        std::ifstream file(entry.path(), std::ios::binary);
        files[entry.path().string()] =
            entry.is_directory() ? "" : std::string(std::istreambuf_iterator<char>(file), {});
    }
    return files;
}

/// For each of the errors and each kind of call, lets the call fail on files whose path contains `path`.
/// Returns the cases in which `fn` does not throw an E whose text has `named` and the system's reason, each
/// on a line.
template <class E, class Fn>
[[nodiscard]] std::string wrong_on_failing(std::initializer_list<const char*> functions,
                                           const std::string& path, const std::string& named, Fn&& fn) {
    std::string wrong;
    for (const char* const function : functions) {
        for (const auto& [name, number] : system_errors) {
            std::string found = "no error";
            bool is_right = false;
            try {
                const FailingCall failing(function, name, path);
                fn();
            } catch (const E& error) {
                found = error.what();
                is_right = found.find(named) != std::string::npos &&
                           found.find(dptk::detail::errno_text(number)) != std::string::npos;
            } catch (const std::exception& error) {
                found = std::string("another type: ") + error.what();
            }
            if (!is_right) wrong += std::string(function) + ' ' + name + ": " + found + '\n';
        }
    }
    return wrong;
}

}  // namespace test
