// Fuzz target of the image decoders.
//
// With libFuzzer:
//     clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -I include tests/fuzz/images.cpp -ljpeg
//     -lpng -lz
//     ./a.out corpus tests/fuzz/readers/image tests/data/images/files
// With -DDPTK_FUZZ_REPLAY it is a plain program that replays files, also changed ones: images FILE...
#include <dptk/data/images/image_decoder.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

#include "readers.hpp"

namespace {

void read_image(std::span<const std::byte> bytes) {
    const dptk::Image image = dptk::decode_image(bytes, "fuzz", {.max_pixels = 1 << 16});
    fuzz::require(image.pixels.size() == image.width * image.height * 3 && !image.pixels.empty(), "size");
}

}  // namespace

#ifdef DPTK_FUZZ_REPLAY

int main(int count, char** arguments) {
    fuzz::replay(read_image, std::span(arguments, static_cast<std::size_t>(count)).subspan(1));
}

#else

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::read(read_image, std::as_bytes(std::span(data, size)));
    return 0;
}

#endif
