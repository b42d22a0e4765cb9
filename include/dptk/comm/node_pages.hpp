/// Pages of memory that the processes of one host map. They have no name in any file system, so that nothing
/// stays behind whatever ends the processes, /dev/shm's size does not matter, and only processes of the same
/// user reach them.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "dptk/core/error.hpp"
#include "dptk/core/export.hpp"
#include "dptk/core/text.hpp"

namespace dptk::detail {

/// Which pages, for another process of this host. Trivially copyable; without bytes where there are none.
struct PagesCard {
    std::int64_t process = 0;
    std::int32_t descriptor = -1;
    std::uint64_t device = 0;
    std::uint64_t file = 0;
    std::uint64_t bytes = 0;
};

class NodePages {
  public:
    /// Makes pages in one process and opens them in others, all of which call this. publish(card) gives what
    /// the process that makes them has published; all_succeed(success) whether all processes say so;
    /// touch(pages) is for what a process does before others use them. Returns null, on all, where one has a
    /// problem, which says why there.
    template <class Publish, class AllSucceed, class Touch>
    [[nodiscard]] static std::shared_ptr<NodePages> share(bool makes_them, std::size_t bytes,
                                                          Publish&& publish, AllSucceed&& all_succeed,
                                                          Touch&& touch, std::string& problem) {
        std::shared_ptr<NodePages> pages;
        const auto attempt = [&](auto&& action) {
            try {
                action();
            } catch (const BackendError& error) {
                pages = nullptr;
                problem = error.what();
            }
        };
        PagesCard card;
        if (makes_them) {
            attempt([&] {
                pages = create(bytes);
                card = pages->card();
            });
        }
        card = publish(card);
        if (!makes_them && card.bytes != 0) attempt([&] { pages = open(card); });
        if (pages) attempt([&] { touch(*pages); });
        const bool success = all_succeed(pages != nullptr);
        if (makes_them && pages) pages->descriptor_.reset();
        return success ? pages : nullptr;
    }

    /// New ones, all zero. Throws BackendError where the system has none.
    [[nodiscard]] static std::shared_ptr<NodePages> create(std::size_t bytes) {
        check_size(bytes);
        const int file = memfd_create("dptk", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (file < 0) throw_system_error("memfd_create");
        auto owner = std::make_unique<Descriptor>(file);
        if (ftruncate(file, static_cast<off_t>(bytes)) != 0)
            throw_system_error(text("ftruncate to ", bytes, " bytes"));
        // Nobody can take away pages that others have mapped.
        static_cast<void>(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
        auto pages = std::shared_ptr<NodePages>(new NodePages(file, bytes));
        pages->descriptor_ = std::move(owner);
        pages->file_ = pages->card().file;
        Registry& registry = Registry::get();
        const std::lock_guard lock(registry.mutex);
        registry.pages[pages->file_] = pages;
        return pages;
    }

    /// Those of another rank. Throws BackendError, which says why, where they cannot be reached.
    [[nodiscard]] static std::shared_ptr<NodePages> open(const PagesCard& card) {
        if (card.process == getpid()) {  // a thread of this process: one mapping, which tools can follow
            Registry& registry = Registry::get();
            const std::lock_guard lock(registry.mutex);
            const auto found = registry.pages.find(card.file);
            auto pages = found == registry.pages.end() ? nullptr : found->second.lock();
            if (pages) return pages;
        }
        const std::string path = text("/proc/", card.process, "/fd/", card.descriptor);
        const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
        if (file.number < 0) throw_system_error("open(" + path + ")");
        struct stat status {};
        if (fstat(file.number, &status) != 0) throw_system_error("fstat(" + path + ")");
        if (status.st_dev != card.device || status.st_ino != card.file)
            throw BackendError(path + " is another file here: the processes do not see the same /proc");
        return std::shared_ptr<NodePages>(new NodePages(file.number, card.bytes));
    }

    NodePages(const NodePages&) = delete;
    NodePages& operator=(const NodePages&) = delete;
    ~NodePages() {
        munmap(data_, bytes_);
        if (file_ == 0) return;
        Registry& registry = Registry::get();
        const std::lock_guard lock(registry.mutex);
        registry.pages.erase(file_);
    }

    [[nodiscard]] std::byte* data() const noexcept { return data_; }

    /// Makes the system find memory for so many bytes, now and near this processor. Throws BackendError where
    /// it has none.
    void touch(std::size_t first, std::size_t bytes) {
        constexpr int populate_for_writing = 23;  // MADV_POPULATE_WRITE, since Linux 5.14
        if (madvise(data_ + first, bytes, populate_for_writing) == 0) return;
        if (errno != EINVAL) throw_system_error(text("memory for ", bytes, " bytes"));
        std::memset(data_ + first, 0, bytes);
    }

  private:
    /// For others to open. Of pages that were made here.
    [[nodiscard]] PagesCard card() const {
        struct stat status {};
        if (fstat(descriptor_->number, &status) != 0) throw_system_error("fstat");
        return {getpid(), descriptor_->number, status.st_dev, status.st_ino, bytes_};
    }

    /// The system would end the process where it goes on to write what it has promised.
    static void check_size(std::size_t bytes) {
        const auto all = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
                         static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        rlimit limit{};
        getrlimit(RLIMIT_FSIZE, &limit);
        if (bytes > all) throw BackendError(text(bytes, " bytes are more than this machine has"));
        if (bytes > limit.rlim_cur) throw BackendError(text(bytes, " bytes are more than ulimit -f allows"));
    }

    struct Descriptor {
        explicit Descriptor(int number_) : number(number_) {}
        Descriptor(const Descriptor&) = delete;
        Descriptor& operator=(const Descriptor&) = delete;
        ~Descriptor() {
            if (number >= 0) ::close(number);
        }
        const int number;
    };

    /// Of this process: those that were made in it.
    struct Registry {
        std::mutex mutex;
        std::map<std::uint64_t, std::weak_ptr<NodePages>> pages;

        DPTK_EXPORT static Registry& get() {
            static Registry& registry = *new Registry;
            return registry;
        }
    };

    NodePages(int file, std::size_t bytes) : bytes_(bytes) {
        void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (mapped == MAP_FAILED) throw_system_error(text("mmap of ", bytes, " bytes"));
        data_ = static_cast<std::byte*>(mapped);
        static_cast<void>(madvise(mapped, bytes, MADV_HUGEPAGE));  // where the system allows it
    }

    [[noreturn]] static void throw_system_error(const std::string& what) {
        throw BackendError(what + ": " + std::strerror(errno));
    }

    std::byte* data_ = nullptr;
    std::size_t bytes_;
    /// Of those that were made here.
    std::uint64_t file_ = 0;
    std::unique_ptr<Descriptor> descriptor_;
};

}  // namespace dptk::detail
