// Reads the dataset on which the programs of this folder train: handwritten digits in MNIST's format.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

struct Digits {
    static constexpr std::size_t pixels_per_image = 64;

    std::vector<float> pixels;
    std::vector<int> labels;

    [[nodiscard]] std::size_t size() const { return labels.size(); }
    [[nodiscard]] const float* image(std::size_t i) const { return &pixels[i * pixels_per_image]; }
};

// Returns the bytes of a gzip-compressed IDX file after its header of `header` bytes.
inline std::vector<unsigned char> read_idx(const std::string& path, int header) {
    gzFile file = gzopen(path.c_str(), "rb");
    if (file == nullptr) throw std::runtime_error("cannot open " + path);
    gzseek(file, header, SEEK_SET);
    std::vector<unsigned char> bytes;
    for (int byte = gzgetc(file); byte >= 0; byte = gzgetc(file))
        bytes.push_back(static_cast<unsigned char>(byte));
    gzclose(file);
    return bytes;
}

// Reads `prefix` + "images-idx3-ubyte.gz" and `prefix` + "labels-idx1-ubyte.gz".
inline Digits read_digits(const std::string& prefix) {
    Digits digits;
    for (const unsigned char pixel : read_idx(prefix + "images-idx3-ubyte.gz", 16))
        digits.pixels.push_back(static_cast<float>(pixel) / 16);
    for (const unsigned char label : read_idx(prefix + "labels-idx1-ubyte.gz", 8))
        digits.labels.push_back(label);
    if (digits.pixels.size() != digits.size() * Digits::pixels_per_image)
        throw std::runtime_error(prefix + ": the numbers of images and labels do not match");
    return digits;
}
