/// What the fuzz targets of readers share: each reader is a function of a file's bytes, which returns or
/// throws FormatError or ArgumentError.
#pragma once

#include <sys/mman.h>
#include <unistd.h>
#include <dptk/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>

namespace fuzz {

/// Ends the program if a reader has returned something impossible.
inline void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "broken: %s\n", what);
    std::abort();
}

/// A file in memory.
class MemoryFile {
  public:
    explicit MemoryFile(std::span<const std::byte> bytes) : number_(::memfd_create("fuzz", 0)) {
        require(::write(number_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()), "memfd");
    }
    ~MemoryFile() { ::close(number_); }
    MemoryFile(const MemoryFile&) = delete;
    MemoryFile& operator=(const MemoryFile&) = delete;

    [[nodiscard]] std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(number_); }

  private:
    int number_;
};

using Reader = void (*)(std::span<const std::byte>);

inline void read(Reader reader, std::span<const std::byte> bytes) {
    try {
        reader(bytes);
    } catch (const dptk::FormatError&) {
    } catch (const dptk::ArgumentError&) {
    }
}

/// Reads each file, also truncated and with changed bytes.
inline void replay(Reader reader, std::span<char* const> files) {
    std::uint32_t random = 1;
    const auto draw = [&](std::size_t limit) {
        random = random * 1664525U + 1013904223U;
        return (random >> 8) % limit;
    };
    for (const char* const path : files) {
        std::ifstream file(path, std::ios::binary);
        std::string content{std::istreambuf_iterator<char>(file), {}};
        const auto bytes = std::as_writable_bytes(std::span(content));
        read(reader, bytes);
        if (bytes.empty()) continue;
        for (int change = 0; change < 100; ++change) {
            std::byte& changed = bytes[draw(bytes.size())];
            const std::byte before = changed;
            changed = static_cast<std::byte>(draw(256));
            read(reader, bytes.first(change % 4 == 0 ? draw(bytes.size()) : bytes.size()));
            if (change % 8 != 0) changed = before;  // some changes stay
        }
    }
}

}  // namespace fuzz
