#pragma once

#include "dptk/control/process/temporary_directory.hpp"

#include <dirent.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "dptk/core/detail/errno_text.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void remove_directory(const char* path) noexcept {
    if (DIR* const directory = opendir(path)) {
        while (const dirent* const entry = readdir(directory)) {
            unlinkat(dirfd(directory), entry->d_name, 0);
        }
        closedir(directory);
    }
    rmdir(path);
}

DPTK_INLINE TemporaryDirectory::TemporaryDirectory(std::string_view prefix) {
    const char* const parent = std::getenv("TMPDIR");
    path_ = text(parent != nullptr && *parent != '\0' ? parent : "/tmp", "/", prefix, "-XXXXXX");
    if (mkdtemp(path_.data()) == nullptr) {
        throw BackendError(text("cannot create the temporary directory ", path_, ": ", errno_text(errno),
                                "; set TMPDIR to choose another directory"));
    }
}

DPTK_INLINE TemporaryDirectory::~TemporaryDirectory() {
    remove_directory(path_.c_str());
}

}  // namespace DPTK_NAMESPACE::detail
