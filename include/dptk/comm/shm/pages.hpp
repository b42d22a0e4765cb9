/// Shared-memory pages (memfd_create) that the processes of one host map. The pages have no name in a file
/// system: they are freed even if the processes crash, the size of /dev/shm does not matter, and only
/// processes of the same user can open them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// Identifies pages to another process of this host. Trivially copyable. `bytes` is 0 if there are no
/// pages.
struct ShmHandle {
    std::int64_t process = 0;
    std::int32_t descriptor = -1;
    std::uint64_t device = 0;
    std::uint64_t file = 0;
    std::uint64_t bytes = 0;
};

class ShmPages {
  public:
    /// Creates pages in the process that passes makes_them = true, and opens them in the others. Collective
    /// among these processes. publish(handle) must return the handle that the creating process passed, and
    /// all_succeed(success) whether all processes passed true. touch(pages) is called in each process before
    /// any process uses the pages. Returns null in all processes if one of them fails; `problem` then says
    /// why in each process that has failed.
    template <class Publish, class AllSucceed, class Touch>
    [[nodiscard]] static std::shared_ptr<ShmPages> share(bool makes_them, std::size_t bytes,
                                                         Publish&& publish, AllSucceed&& all_succeed,
                                                         Touch&& touch, std::string& problem) {
        std::shared_ptr<ShmPages> pages;
        const auto attempt = [&](auto&& action) {
            try {
                action();
            } catch (const BackendError& error) {
                pages = nullptr;
                problem = error.what();
            }
        };
        ShmHandle handle;
        if (makes_them) {
            attempt([&] {
                pages = create(bytes);
                handle = pages->handle();
            });
        }
        handle = publish(handle);
        if (!makes_them && handle.bytes != 0) attempt([&] { pages = open(handle); });
        if (pages) attempt([&] { touch(*pages); });
        const bool success = all_succeed(pages != nullptr);
        if (makes_them && pages) pages->descriptor_.reset();
        return success ? pages : nullptr;
    }

    /// Creates zeroed pages. Throws BackendError if the system cannot create them.
    [[nodiscard]] static std::shared_ptr<ShmPages> create(std::size_t bytes);

    /// Opens the pages of another rank. Throws BackendError with the reason if they cannot be opened.
    [[nodiscard]] static std::shared_ptr<ShmPages> open(const ShmHandle& handle);

    ShmPages(const ShmPages&) = delete;
    ShmPages& operator=(const ShmPages&) = delete;
    ~ShmPages();

    [[nodiscard]] std::byte* data() const noexcept { return data_; }

    /// Faults in `bytes` bytes at offset `first`, which must still be zero, on the NUMA node of the calling
    /// thread. Throws BackendError if the system has no memory for them.
    void touch(std::size_t first, std::size_t bytes);

  private:
    /// The handle with which other processes open the pages. Requires that this process created them.
    [[nodiscard]] ShmHandle handle() const;

    /// Throws BackendError if `bytes` exceeds the machine's memory or the file size limit: the system would
    /// kill a process that exceeds one of these limits.
    static void check_size(std::size_t bytes);

    struct Descriptor {
        explicit Descriptor(int number_) : number(number_) {}
        Descriptor(const Descriptor&) = delete;
        Descriptor& operator=(const Descriptor&) = delete;
        ~Descriptor();
        const int number;
    };

    /// The pages that this process created.
    struct Registry {
        std::mutex mutex;
        std::map<std::uint64_t, std::weak_ptr<ShmPages>> pages;

        DPTK_EXPORT static Registry& get() {
            static Registry& registry = *new Registry;
            return registry;
        }
    };

    ShmPages(int file, std::size_t bytes);

    [[noreturn]] static void throw_system_error(const std::string& what);

    std::byte* data_ = nullptr;
    std::size_t bytes_;
    /// The inode of pages that this process created; 0 otherwise.
    std::uint64_t file_ = 0;
    std::unique_ptr<Descriptor> descriptor_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/shm/pages.ipp"
#endif
