// Fuzz targets of the readers of dataset files.
//
// With libFuzzer, for the reader idx, npy or cifar:
//     clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -DDPTK_FUZZ_READER='"npy"' -I include
//         tests/fuzz/readers.cpp -lz
//     ./a.out corpus tests/fuzz/readers/npy
// With -DDPTK_FUZZ_REPLAY it is a plain program that replays files, also changed ones: readers npy FILE...
#include <dptk/core/dtype.hpp>
#include <dptk/core/tensor.hpp>
#include <dptk/data/readers/cifar.hpp>
#include <dptk/data/readers/idx.hpp>
#include <dptk/data/readers/npy.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "readers.hpp"

namespace {

using fuzz::require;

void read_idx(std::span<const std::byte> bytes) {
    const fuzz::MemoryFile file(bytes);
    const auto array = dptk::read_idx(file.path());
    require(array.bytes.size() == dptk::element_count(array.shape) * dptk::dtype_size(array.dtype),
            "idx: size");
}

void read_npy(std::span<const std::byte> bytes) {
    const fuzz::MemoryFile file(bytes);
    const auto array = dptk::read_npy(file.path());
    require(array.bytes.size() == dptk::element_count(array.shape) * dptk::dtype_size(array.dtype),
            "npy: size");
}

void read_cifar(std::span<const std::byte> bytes) {
    const fuzz::MemoryFile file(bytes);
    const std::array paths{file.path()};
    require(dptk::read_cifar10(paths).size() > 0, "cifar: no images");
}

fuzz::Reader reader_of(std::string_view name) {
    if (name == "idx") return read_idx;
    if (name == "npy") return read_npy;
    require(name == "cifar", "expected idx, npy or cifar");
    return read_cifar;
}

}  // namespace

#ifdef DPTK_FUZZ_REPLAY

int main(int count, char** arguments) {
    require(count > 1, "expected a reader");
    fuzz::replay(reader_of(arguments[1]), std::span(arguments, static_cast<std::size_t>(count)).subspan(2));
}

#else

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const fuzz::Reader reader = reader_of(DPTK_FUZZ_READER);
    fuzz::read(reader, std::as_bytes(std::span(data, size)));
    return 0;
}

#endif
