/// Reads the binary versions of CIFAR-10 and CIFAR-100, plain or compressed with gzip, into an ImageDataset
/// (format: https://www.cs.toronto.edu/~kriz/cifar.html). Files that do not match throw FormatError with the
/// file and the offset.
#pragma once

#include <filesystem>
#include <span>

#include "dptk/core/config.hpp"
#include "dptk/data/image_dataset.hpp"

namespace DPTK_NAMESPACE {

/// Which of CIFAR-100's two labels an image gets.
enum class Cifar100Labels {
    fine,    ///< One of 100 classes.
    coarse,  ///< One of 20 superclasses.
};

/// Reads files of CIFAR-10, such as data_batch_1.bin to data_batch_5.bin, one after the other. Each image is
/// one byte for its label, below 10, and 32 x 32 bytes each for red, green and blue. Throws FormatError if a
/// file cannot be opened, ends within an image, or has another label; and ArgumentError without files.
[[nodiscard]] ImageDataset read_cifar10(std::span<const std::filesystem::path> paths);

/// Reads files of CIFAR-100, train.bin or test.bin, like read_cifar10(). Each image begins with two bytes:
/// its coarse label, below 20, and its fine label, below 100.
[[nodiscard]] ImageDataset read_cifar100(std::span<const std::filesystem::path> paths,
                                         Cifar100Labels labels = Cifar100Labels::fine);

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/data/readers/cifar.ipp"
#endif
