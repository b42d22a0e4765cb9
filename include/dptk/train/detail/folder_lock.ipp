#pragma once

#include "dptk/train/detail/folder_lock.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "dptk/control/net/host.hpp"
#include "dptk/core/detail/errno_text.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns the text of a lock file: "process 123 on host node7", and in an elastic job the line "job" and its
/// name.
[[nodiscard]] DPTK_INLINE std::string lock_text(int file) {
    char text[512];
    const ssize_t bytes = ::pread(file, text, sizeof text, 0);
    return {text, bytes > 0 ? static_cast<std::size_t>(bytes) : 0};
}

DPTK_INLINE FolderLock::FolderLock(const std::filesystem::path& folder, std::string_view job) {
    const std::string own_job = job.empty() ? std::string() : text("job ", job, '\n');
    const std::filesystem::path path = folder / "run.lock";
    file_ = FileDescriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    const auto fail = [&] {
        throw BackendError(text(path.string(), ": cannot be locked: ", errno_text(errno)));
    };
    if (!file_.is_open()) fail();
    struct flock whole {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    if (::fcntl(file_.number(), F_OFD_SETLK, &whole) != 0) {
        if (errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP || errno == EINVAL) return;  // no locks
        if (errno != EAGAIN && errno != EACCES) fail();
        const std::string found = lock_text(file_.number());
        if (!own_job.empty() && found.ends_with('\n' + own_job)) return;
        const bool is_known = found.starts_with("process ");
        throw ArgumentError(text(folder.string(), ": ",
                                 is_known ? found.substr(0, found.find('\n')) : "another run",
                                 " trains in this folder: wait until it has ended, or use another folder"));
    }
    const std::string owner = text("process ", ::getpid(), " on host ", host_name(), '\n', own_job);
    if (::ftruncate(file_.number(), 0) != 0 ||
        ::pwrite(file_.number(), owner.data(), owner.size(), 0) != static_cast<ssize_t>(owner.size()))
        fail();
}

}  // namespace DPTK_NAMESPACE::detail
