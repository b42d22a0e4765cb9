// Fuzz target of SafetensorsFile. With libFuzzer:
//     clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -I include tests/fuzz/safetensors.cpp
//     ./a.out corpus tests/fuzz/readers/safetensors
// With -DDPTK_FUZZ_REPLAY it is a plain program that replays files, also changed ones.
#include <dptk/weights/safetensors.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "readers.hpp"

namespace {

void read_safetensors(std::span<const std::byte> bytes) {
    const fuzz::MemoryFile memory(bytes);
    const dptk::SafetensorsFile file(memory.path());
    std::size_t end = 0;
    for (const dptk::SafetensorsEntry& entry : file.entries()) {
        fuzz::require(entry.count == dptk::element_count(entry.shape), "the shape is that of the elements");
        fuzz::require(end == 0 || entry.offset == end, "there are no gaps");
        fuzz::require(file.find(entry.name) == &entry, "each name is found");
        end = entry.offset + entry.bytes();
        std::vector<std::byte> elements(entry.bytes());
        file.read(entry, {elements.data(), entry.count, entry.dtype});
    }
    fuzz::require(end == 0 || end == bytes.size(), "the tensors end with the file");
}

}  // namespace

#ifdef DPTK_FUZZ_REPLAY

int main(int count, char** arguments) {
    fuzz::replay(read_safetensors, std::span(arguments, static_cast<std::size_t>(count)).subspan(1));
}

#else

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::read(read_safetensors, std::as_bytes(std::span(data, size)));
    return 0;
}

#endif
