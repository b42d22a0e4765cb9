// A shared library that makes calls of the operating system fail. It is linked to test programs, and
// preloaded (LD_PRELOAD) into other programs. The environment variable DPTK_TEST_FAIL, which is read in each
// call, is FUNCTION:ERROR:PATH, such as read:EIO:model.safetensors. FUNCTION is open, read, write, fsync,
// rename or lock, and stands for all calls of that kind; those on a file whose path contains PATH fail with
// ERROR.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace {

constexpr std::array<std::pair<std::string_view, int>, 8> errors{{{"EACCES", EACCES},
                                                                  {"ESTALE", ESTALE},
                                                                  {"EMFILE", EMFILE},
                                                                  {"EIO", EIO},
                                                                  {"ENOMEM", ENOMEM},
                                                                  {"ENOSPC", ENOSPC},
                                                                  {"ENOLCK", ENOLCK},
                                                                  {"EINTR", EINTR}}};

/// Sets errno, and returns true, if a call on one of two paths is to fail.
bool fails(std::string_view function, std::string_view path, std::string_view other = {}) {
    const char* const setting = std::getenv("DPTK_TEST_FAIL");
    if (setting == nullptr) return false;
    const std::string_view text = setting;
    const std::size_t first = text.find(':'), second = text.find(':', first + 1);
    if (second == std::string_view::npos || text.substr(0, first) != function) return false;
    const std::string_view part = text.substr(second + 1);
    if (path.find(part) == std::string_view::npos && other.find(part) == std::string_view::npos) return false;
    for (const auto& [name, number] : errors) {
        if (name != text.substr(first + 1, second - first - 1)) continue;
        errno = number;
        return true;
    }
    std::fprintf(stderr, "DPTK_TEST_FAIL=%s: unknown error\n", setting);
    std::abort();
}

bool fails(std::string_view function, int descriptor) {
    if (std::getenv("DPTK_TEST_FAIL") == nullptr) return false;
    std::array<char, PATH_MAX> path{};
    const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
    const ssize_t length = ::readlink(link.c_str(), path.data(), path.size());
    return length > 0 && fails(function, std::string_view(path.data(), static_cast<std::size_t>(length)));
}

/// Returns the function that a call would reach without this library.
template <class Function>
Function* next(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

mode_t mode_of(int flags, va_list arguments) {
    return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

extern "C" {

#define DPTK_TEST_OPEN(name)                                               \
    int name(const char* path, int flags, ...) {                           \
        va_list arguments;                                                 \
        va_start(arguments, flags);                                        \
        const mode_t mode = mode_of(flags, arguments);                     \
        va_end(arguments);                                                 \
        static auto* const real = next<int(const char*, int, ...)>(#name); \
        return fails("open", path) ? -1 : real(path, flags, mode);         \
    }
#define DPTK_TEST_OPENAT(name)                                                  \
    int name(int folder, const char* path, int flags, ...) {                    \
        va_list arguments;                                                      \
        va_start(arguments, flags);                                             \
        const mode_t mode = mode_of(flags, arguments);                          \
        va_end(arguments);                                                      \
        static auto* const real = next<int(int, const char*, int, ...)>(#name); \
        return fails("open", path) ? -1 : real(folder, path, flags, mode);      \
    }
#define DPTK_TEST_FOPEN(name)                                                   \
    FILE* name(const char* path, const char* mode) {                            \
        static auto* const real = next<FILE*(const char*, const char*)>(#name); \
        return fails("open", path) ? nullptr : real(path, mode);                \
    }
#define DPTK_TEST_CALL(kind, result, name, parameters, arguments) \
    result name parameters {                                      \
        static auto* const real = next<result parameters>(#name); \
        return fails(kind, file) ? -1 : real arguments;           \
    }

DPTK_TEST_OPEN(open)
DPTK_TEST_OPEN(open64)
DPTK_TEST_OPENAT(openat)
DPTK_TEST_OPENAT(openat64)
DPTK_TEST_FOPEN(fopen)
DPTK_TEST_FOPEN(fopen64)
DPTK_TEST_CALL("read", ssize_t, read, (int file, void* to, size_t bytes), (file, to, bytes))
DPTK_TEST_CALL("read", ssize_t, readv, (int file, const iovec* to, int count), (file, to, count))
DPTK_TEST_CALL("read", ssize_t, pread, (int file, void* to, size_t bytes, off_t at), (file, to, bytes, at))
DPTK_TEST_CALL("read", ssize_t, pread64, (int file, void* to, size_t bytes, off64_t at),
               (file, to, bytes, at))
DPTK_TEST_CALL("write", ssize_t, write, (int file, const void* from, size_t bytes), (file, from, bytes))
DPTK_TEST_CALL("write", ssize_t, writev, (int file, const iovec* from, int count), (file, from, count))
DPTK_TEST_CALL("fsync", int, fsync, (int file), (file))

#define DPTK_TEST_FCNTL(name)                                                     \
    int name(int file, int command, ...) {                                        \
        va_list arguments;                                                        \
        va_start(arguments, command);                                             \
        void* const argument = va_arg(arguments, void*);                          \
        va_end(arguments);                                                        \
        static auto* const real = next<int(int, int, ...)>(#name);                \
        const bool locks = command == F_SETLK || command == F_OFD_SETLK;          \
        return locks && fails("lock", file) ? -1 : real(file, command, argument); \
    }
DPTK_TEST_FCNTL(fcntl)
DPTK_TEST_FCNTL(fcntl64)

DIR* opendir(const char* path) {
    static auto* const real = next<DIR*(const char*)>("opendir");
    return fails("open", path) ? nullptr : real(path);
}

int rename(const char* from, const char* to) noexcept {
    static auto* const real = next<int(const char*, const char*)>("rename");
    return fails("rename", from, to) ? -1 : real(from, to);
}

}  // extern "C"
