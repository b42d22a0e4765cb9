#include "dptk/data/readers/cifar.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/readers/files.hpp"

namespace {

/// An image that begins with these labels, and whose pixels depend on `seed`.
std::string image(const std::string& labels, int seed) {
    std::string out = labels;
    for (int i = 0; i < 3072; ++i) out += static_cast<char>((i * 7 + seed) % 256);
    return out;
}

std::string error_of(const std::vector<std::filesystem::path>& paths) {
    return format_error_of([&] { static_cast<void>(dptk::read_cifar10(paths)); });
}

}  // namespace

TEST_CASE("CIFAR-10's files are read one after the other, plain or compressed") {
    const TemporaryFolder folder;
    const std::vector<std::filesystem::path> paths = {
        folder.write("data_batch_1.bin", image("\x03", 1) + image("\x09", 2)),
        write_gzip(folder / "data_batch_2.bin.gz", image(std::string(1, '\0'), 3))};
    const dptk::ImageDataset dataset = dptk::read_cifar10(paths);
    CHECK(dataset.size() == 3);
    CHECK(dataset.channels() == 3);
    CHECK(dataset.height() == 32);
    CHECK(dataset.width() == 32);
    CHECK(dataset.classes() == 10);
    CHECK(std::vector<std::uint8_t>(dataset.labels().begin(), dataset.labels().end()) ==
          std::vector<std::uint8_t>{3, 9, 0});
    for (std::size_t i = 0; i < 3072; ++i) CHECK(dataset[2].pixels[i] == (i * 7 + 3) % 256);
}

TEST_CASE("CIFAR-100 has a fine and a coarse label") {
    const TemporaryFolder folder;
    const std::array paths = {folder.write("train.bin", image("\x13\x63", 1) + image("\x01\x02", 2))};
    const dptk::ImageDataset fine = dptk::read_cifar100(paths);
    CHECK(fine.classes() == 100);
    CHECK(fine[0].label == 99);
    CHECK(fine[1].pixels[1] == 9);
    const dptk::ImageDataset coarse = dptk::read_cifar100(paths, dptk::Cifar100Labels::coarse);
    CHECK(coarse.classes() == 20);
    CHECK(coarse[0].label == 19);
}

TEST_CASE("damaged files of CIFAR are errors with the file and the offset") {
    const TemporaryFolder folder;
    const std::string two = image("\x01", 1) + image("\x02", 2);
    for (std::size_t length = 0; length < two.size(); length += length < 3070 || length > 3076 ? 61 : 1) {
        if (length == 3073) continue;  // one image
        const auto path = folder.write("cut.bin", two.substr(0, length));
        CHECK(error_of({path}) == path.string() + ": byte " + std::to_string(length) +
                                      ": expected images of 3073 bytes, found the end of the file" +
                                      (length == 0 ? "" : " after " + std::to_string(length % 3073)));
    }
    const auto wrong = folder.write("wrong.bin", image("\x01", 1) + image("\x0a", 2));
    CHECK(error_of({wrong}) == wrong.string() + ": byte 3073: expected a label below 10, found 10");
    CHECK_THROWS_WITH_AS(error_of({folder / "missing.bin"}), doctest::Contains("No such file"),
                         dptk::BackendError);
    CHECK_THROWS_WITH_AS(error_of({wrong.parent_path()}), doctest::Contains(": byte 0: expected "),
                         dptk::BackendError);
    CHECK_THROWS_WITH_AS(static_cast<void>(dptk::read_cifar10({})),
                         "CIFAR: expected at least one file, found none", dptk::ArgumentError);
    const std::array fine = {folder.write("fine.bin", image("\x01\x64", 1))};
    CHECK(format_error_of([&] { static_cast<void>(dptk::read_cifar100(fine)); }) ==
          fine[0].string() + ": byte 1: expected a fine label below 100, found 100");
    const std::array coarse = {folder.write("coarse.bin", image("\x14\x01", 1))};
    CHECK(format_error_of([&] { static_cast<void>(dptk::read_cifar100(coarse)); }) ==
          coarse[0].string() + ": byte 0: expected a coarse label below 20, found 20");
}
