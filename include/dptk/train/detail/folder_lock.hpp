/// FolderLock, which keeps a second run out of a folder.
#pragma once

#include <filesystem>
#include <string_view>

#include "dptk/control/net/socket.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// A lock on the file `run.lock` in a folder. The operating system releases it when the process ends, however
/// it ends. It also excludes processes on other hosts if the file system has locks between hosts, as NFS
/// does.
class FolderLock {
  public:
    /// Throws ArgumentError if another FolderLock, of any process, has the lock, and BackendError if the
    /// file cannot be opened or locked. On a file system without locks, this lock excludes nobody. If `job`
    /// is not empty, it does not exclude processes of the same elastic job either: a former rank 0 that was
    /// stopped may still have the lock.
    explicit FolderLock(const std::filesystem::path& folder, std::string_view job = {});

  private:
    FileDescriptor file_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/train/detail/folder_lock.ipp"
#endif
