#pragma once

#include "dptk/data/readers/cifar.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/readers/detail/gzip_file.hpp"

namespace DPTK_NAMESPACE::detail {

/// One of the bytes before an image's pixels.
struct CifarLabel {
    std::string_view name;
    std::size_t classes;
};

/// Reads images that begin with these labels. The images' labels are those at position `chosen`.
[[nodiscard]] DPTK_INLINE ImageDataset read_cifar(std::span<const std::filesystem::path> paths,
                                                  std::span<const CifarLabel> labels, std::size_t chosen) {
    constexpr std::size_t side = 32, channels = 3, pixels_per_image = channels * side * side;
    if (paths.empty()) throw ArgumentError("CIFAR: expected at least one file, found none");
    const std::size_t image_bytes = labels.size() + pixels_per_image;
    std::vector<std::uint8_t> pixels, own_labels;
    for (const std::filesystem::path& path : paths) {
        GzipFile file(path);
        const std::vector<std::byte> bytes = file.read_all();
        const std::size_t rest = bytes.size() % image_bytes;
        if (bytes.empty()) file.fail(0, text("images of ", image_bytes, " bytes"), "the end of the file");
        if (rest != 0)
            file.fail(bytes.size(), text("images of ", image_bytes, " bytes"),
                      text("the end of the file after ", rest));
        for (std::size_t first = 0; first < bytes.size(); first += image_bytes) {
            for (std::size_t i = 0; i < labels.size(); ++i) {
                const auto label = std::to_integer<std::uint8_t>(bytes[first + i]);
                if (label >= labels[i].classes)
                    file.fail(first + i, text("a ", labels[i].name, " below ", labels[i].classes),
                              text(label));
                if (i == chosen) own_labels.push_back(label);
            }
            for (std::size_t i = labels.size(); i < image_bytes; ++i)
                pixels.push_back(std::to_integer<std::uint8_t>(bytes[first + i]));
        }
    }
    const std::size_t shape[] = {own_labels.size(), channels, side, side};
    return ImageDataset(std::move(pixels), shape, std::move(own_labels), {.classes = labels[chosen].classes});
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE ImageDataset read_cifar10(std::span<const std::filesystem::path> paths) {
    constexpr detail::CifarLabel labels[] = {{"label", 10}};
    return detail::read_cifar(paths, labels, 0);
}

DPTK_INLINE ImageDataset read_cifar100(std::span<const std::filesystem::path> paths, Cifar100Labels labels) {
    constexpr detail::CifarLabel both[] = {{"coarse label", 20}, {"fine label", 100}};
    return detail::read_cifar(paths, both, labels == Cifar100Labels::coarse ? 0 : 1);
}

}  // namespace DPTK_NAMESPACE
