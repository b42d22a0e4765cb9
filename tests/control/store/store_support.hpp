// Helpers of the store tests.
#pragma once

#include <dptk/control/store/tcp_store.hpp>
#include <dptk/control/store/tcp_store_server.hpp>
#include <dptk/core/error.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "support/recorded_log.hpp"

inline bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

/// A temporary directory that is removed together with the files that path() has named.
class TemporaryDirectory {
  public:
    TemporaryDirectory() {
        if (mkdtemp(name_.data()) == nullptr) throw std::runtime_error("no temporary directory");
    }
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
    ~TemporaryDirectory() {
        for (const std::string& file : files_) unlink(file.c_str());
        rmdir(name_.c_str());
    }

    [[nodiscard]] const std::string& name() const { return name_; }

    [[nodiscard]] std::string path(const std::string& file) {
        return files_.emplace_back(name_ + "/" + file);
    }

  private:
    std::string name_ = "/tmp/dptk-test-XXXXXX";
    std::vector<std::string> files_;
};

/// Returns the message of the Error that the function throws, marks another error, or returns "(no error)".
template <class Error, class Function>
std::string message_of(Function function) {
    try {
        function();
    } catch (const Error& error) {
        return error.what();
    } catch (const std::exception& error) {
        return std::string("(another error) ") + error.what();
    }
    return "(no error)";
}

inline std::shared_ptr<dptk::TcpStore> connect(const dptk::TcpStoreServer& server,
                                               const std::string& token = "") {
    return dptk::TcpStore::connect({"127.0.0.1", server.port()},
                                   {.token = token, .timeout = std::chrono::seconds(60)});
}
