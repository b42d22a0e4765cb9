/// A launcher that wants to tell the rank that failed first from those that failed because of it names a file
/// in DPTK_ERROR_FILE: a rank whose job breaks writes one word, `cause` or `consequence`, and then the
/// reason.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "dptk/control/job_health.hpp"

namespace dptk::detail {

inline void write_error_file(Failure kind, std::string_view reason) {
    const char* path = std::getenv("DPTK_ERROR_FILE");
    if (path == nullptr) return;
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "we"), &std::fclose);
    if (!file) return;
    const std::string_view word = kind == Failure::here ? "cause\n" : "consequence\n";
    std::fwrite(word.data(), 1, word.size(), file.get());
    std::fwrite(reason.data(), 1, reason.size(), file.get());
}

}  // namespace dptk::detail
