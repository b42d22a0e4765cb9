/// Pages of memory that the processes of one host map. They have no name in any file system, so that nothing
/// stays behind whatever ends the processes, /dev/shm's size does not matter, and only processes of the same
/// user reach them.
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

/// Which pages, for another process of this host. Trivially copyable; without bytes where there are none.
struct ShmHandle {
    std::int64_t process = 0;
    std::int32_t descriptor = -1;
    std::uint64_t device = 0;
    std::uint64_t file = 0;
    std::uint64_t bytes = 0;
};

class ShmPages {
  public:
    /// Makes pages in one process and opens them in others, all of which call this. publish(handle) gives
    /// what the process that makes them has published; all_succeed(success) whether all processes say so;
    /// touch(pages) is for what a process does before others use them. Returns null, on all, where one has a
    /// problem, which says why there.
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

    /// New ones, all zero. Throws BackendError where the system has none.
    [[nodiscard]] static std::shared_ptr<ShmPages> create(std::size_t bytes);

    /// Those of another rank. Throws BackendError, which says why, where they cannot be reached.
    [[nodiscard]] static std::shared_ptr<ShmPages> open(const ShmHandle& handle);

    ShmPages(const ShmPages&) = delete;
    ShmPages& operator=(const ShmPages&) = delete;
    ~ShmPages();

    [[nodiscard]] std::byte* data() const noexcept { return data_; }

    /// Makes the system find memory for so many bytes, now and near this processor. Throws BackendError where
    /// it has none.
    void touch(std::size_t first, std::size_t bytes);

  private:
    /// For others to open. Of pages that were made here.
    [[nodiscard]] ShmHandle handle() const;

    /// The system would end the process where it goes on to write what it has promised.
    static void check_size(std::size_t bytes);

    struct Descriptor {
        explicit Descriptor(int number_) : number(number_) {}
        Descriptor(const Descriptor&) = delete;
        Descriptor& operator=(const Descriptor&) = delete;
        ~Descriptor();
        const int number;
    };

    /// Of this process: those that were made in it.
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
    /// Of those that were made here.
    std::uint64_t file_ = 0;
    std::unique_ptr<Descriptor> descriptor_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/shm/pages.ipp"
#endif
