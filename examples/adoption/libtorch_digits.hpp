// What both libtorch programs train, and on what: handwritten digits in MNIST's format, of any size.
#pragma once

#include <torch/torch.h>
#include <zlib.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

// The bytes of an IDX file, plain or gzip, behind its header: magic number and `dimensions` sizes.
inline torch::Tensor read_idx(const std::string& path, int dimensions) {
    gzFile file = gzopen(path.c_str(), "rb");
    if (file == nullptr) throw std::runtime_error("cannot open " + path);
    const auto read_number = [&] {
        unsigned char bytes[4] = {};
        gzread(file, bytes, 4);
        return std::int64_t{bytes[0]} << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
    };
    const bool is_idx = read_number() == 0x800 + dimensions;
    std::vector<std::int64_t> sizes;
    for (int d = 0; is_idx && d < dimensions; ++d) sizes.push_back(read_number());
    torch::Tensor bytes = torch::empty(sizes, torch::kUInt8);
    const bool is_whole =
        is_idx && gzread(file, bytes.data_ptr(), static_cast<unsigned>(bytes.numel())) == bytes.numel();
    gzclose(file);
    if (!is_whole)
        throw std::runtime_error(path + " is no whole IDX file of bytes with " + std::to_string(dimensions) +
                                 " dimensions");
    return bytes;
}

class Digits : public torch::data::datasets::Dataset<Digits> {
  public:
    // `prefix` + "images-idx3-ubyte.gz" and `prefix` + "labels-idx1-ubyte.gz".
    explicit Digits(const std::string& prefix)
        : images_(read_idx(prefix + "images-idx3-ubyte.gz", 3).unsqueeze(1).to(torch::kFloat)),
          labels_(read_idx(prefix + "labels-idx1-ubyte.gz", 1).to(torch::kLong)) {
        images_ /= images_.max();
    }

    torch::data::Example<> get(std::size_t index) override {
        const auto i = static_cast<std::int64_t>(index);
        return {images_[i], labels_[i]};
    }

    torch::optional<std::size_t> size() const override { return static_cast<std::size_t>(labels_.size(0)); }

    [[nodiscard]] const torch::Tensor& images() const { return images_; }
    [[nodiscard]] const torch::Tensor& labels() const { return labels_; }

  private:
    torch::Tensor images_;
    torch::Tensor labels_;
};

struct Net : torch::nn::Module {
    torch::nn::Conv2d conv1 =
        register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 16, 3).padding(1)));
    torch::nn::Conv2d conv2 =
        register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 32, 3).padding(1)));
    torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(32 * 4 * 4, 64));
    torch::nn::Linear fc2 = register_module("fc2", torch::nn::Linear(64, 10));

    torch::Tensor forward(torch::Tensor x) {
        x = torch::relu(conv1(x));
        x = torch::adaptive_avg_pool2d(torch::relu(conv2(x)), {4, 4});
        return torch::log_softmax(fc2(torch::relu(fc1(x.flatten(1)))), 1);
    }
};
