#pragma once

#include "dptk/comm/shm/pages.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "dptk/core/detail/errno_text.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::shared_ptr<ShmPages> ShmPages::create(std::size_t bytes) {
    check_size(bytes);
    const int file = memfd_create("dptk", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0) throw_system_error("memfd_create");
    auto owner = std::make_unique<Descriptor>(file);
    if (ftruncate(file, static_cast<off_t>(bytes)) != 0)
        throw_system_error(text("ftruncate to ", bytes, " bytes"));
    // Sealing keeps other processes from shrinking pages that are mapped here.
    static_cast<void>(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
    auto pages = std::shared_ptr<ShmPages>(new ShmPages(file, bytes));
    pages->descriptor_ = std::move(owner);
    pages->file_ = pages->handle().file;
    Registry& registry = Registry::get();
    const std::lock_guard lock(registry.mutex);
    registry.pages[pages->file_] = pages;
    return pages;
}

DPTK_INLINE std::shared_ptr<ShmPages> ShmPages::open(const ShmHandle& handle) {
    // Ranks that are threads of one process share one mapping, so that race detectors see that these ranks
    // access the same memory.
    if (handle.process == getpid()) {
        Registry& registry = Registry::get();
        const std::lock_guard lock(registry.mutex);
        const auto found = registry.pages.find(handle.file);
        auto pages = found == registry.pages.end() ? nullptr : found->second.lock();
        if (pages) return pages;
    }
    const std::string path = text("/proc/", handle.process, "/fd/", handle.descriptor);
    const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
    if (file.number < 0) throw_system_error("open(" + path + ")");
    struct stat status {};
    if (fstat(file.number, &status) != 0) throw_system_error("fstat(" + path + ")");
    if (status.st_dev != handle.device || status.st_ino != handle.file)
        throw BackendError(path + " is a different file here: the processes do not see the same /proc");
    return std::shared_ptr<ShmPages>(new ShmPages(file.number, handle.bytes));
}

DPTK_INLINE ShmPages::~ShmPages() {
    munmap(data_, bytes_);
    if (file_ == 0) return;
    Registry& registry = Registry::get();
    const std::lock_guard lock(registry.mutex);
    registry.pages.erase(file_);
}

DPTK_INLINE void ShmPages::touch(std::size_t first, std::size_t bytes) {
    constexpr int populate_for_writing = 23;  // MADV_POPULATE_WRITE, since Linux 5.14
    if (madvise(data_ + first, bytes, populate_for_writing) == 0) return;
    if (errno != EINVAL) throw_system_error(text("madvise of ", bytes, " bytes"));
    std::memset(data_ + first, 0, bytes);
}

DPTK_INLINE ShmHandle ShmPages::handle() const {
    struct stat status {};
    if (fstat(descriptor_->number, &status) != 0) throw_system_error("fstat");
    return {getpid(), descriptor_->number, status.st_dev, status.st_ino, bytes_};
}

DPTK_INLINE void ShmPages::check_size(std::size_t bytes) {
    const auto all =
        static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    if (bytes > all)
        throw BackendError(text(bytes, " bytes are more than this machine's memory (", all, " bytes)"));
    if (bytes > limit.rlim_cur) throw BackendError(text(bytes, " bytes are more than ulimit -f allows"));
}

DPTK_INLINE ShmPages::Descriptor::~Descriptor() {
    if (number >= 0) ::close(number);
}

DPTK_INLINE ShmPages::ShmPages(int file, std::size_t bytes) : bytes_(bytes) {
    void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) throw_system_error(text("mmap of ", bytes, " bytes"));
    data_ = static_cast<std::byte*>(mapped);
    static_cast<void>(madvise(mapped, bytes, MADV_HUGEPAGE));  // if the system allows it
}

DPTK_INLINE void ShmPages::throw_system_error(const std::string& what) {
    throw BackendError(what + ": " + errno_text(errno));
}

}  // namespace DPTK_NAMESPACE::detail
