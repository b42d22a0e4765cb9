#include "dptk/data/images/image_decoder.hpp"

#include <doctest/doctest.h>
#include <dptk/core/error.hpp>
#include <dptk/data/detail/input_file.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <jpeglib.h>

#include "data/transforms/pictures.hpp"

namespace {

using Bytes = std::vector<std::byte>;

const std::filesystem::path folder = DPTK_TEST_SOURCE_DIR "/data/images/files";

Bytes bytes_of(const std::string& file) {
    return dptk::detail::file_bytes(folder / file);
}

std::string problem_of(const Bytes& bytes, const dptk::DecodeOptions& options = {}) {
    try {
        static_cast<void>(dptk::decode_image(bytes, "x", options));
    } catch (const dptk::FormatError& error) {
        return error.what();
    }
    return "";
}

/// Replaces bytes from `offset` on.
Bytes changed(Bytes bytes, std::size_t offset, const std::vector<int>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) bytes.at(offset + i) = static_cast<std::byte>(values[i]);
    return bytes;
}

/// Returns the offset of the first occurrence of a marker.
std::size_t find(const Bytes& bytes, const std::string& marker) {
    const auto* const first = reinterpret_cast<const std::byte*>(marker.data());
    const auto found = std::search(bytes.begin(), bytes.end(), first, first + marker.size());
    REQUIRE(found != bytes.end());
    return static_cast<std::size_t>(found - bytes.begin());
}

/// Returns a gray image of 8 x 8 pixels that is encoded in many scans, at most 694: each coefficient bit by
/// bit.
Bytes with_scans(std::size_t count) {
    std::vector<jpeg_scan_info> scans{{1, {0}, 0, 0, 0, 0}};
    for (int k = 1; k < 64; ++k) {
        scans.push_back({1, {0}, k, k, 0, 10});
        for (int bit = 10; bit > 0; --bit) scans.push_back({1, {0}, k, k, bit, bit - 1});
    }
    REQUIRE(count <= scans.size());
    jpeg_error_mgr errors;
    jpeg_compress_struct info;
    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    unsigned char* memory = nullptr;
    unsigned long size = 0;
    jpeg_mem_dest(&info, &memory, &size);
    info.image_width = info.image_height = 8;
    info.input_components = 1;
    info.in_color_space = JCS_GRAYSCALE;
    jpeg_set_defaults(&info);
    info.scan_info = scans.data();
    info.num_scans = static_cast<int>(count);
    jpeg_start_compress(&info, TRUE);
    for (int y = 0; y < 8; ++y) {
        unsigned char row[8];
        for (int x = 0; x < 8; ++x) row[x] = static_cast<unsigned char>(37 * (8 * y + x));
        JSAMPROW one = row;
        jpeg_write_scanlines(&info, &one, 1);
    }
    jpeg_finish_compress(&info);
    const auto* const first = reinterpret_cast<const std::byte*>(memory);
    Bytes bytes(first, first + size);
    jpeg_destroy_compress(&info);
    std::free(memory);
    return bytes;
}

}  // namespace

TEST_CASE("decoded images have the pixels that Pillow decodes") {
    std::ifstream recorded(DPTK_TEST_SOURCE_DIR "/data/images/images_pillow.txt");
    std::string file;
    std::size_t width = 0, height = 0, files = 0;
    std::uint64_t hash = 0;
    while (recorded >> file >> width >> height >> hash) {
        CAPTURE(file);
        const dptk::Image image = dptk::read_image(
            folder / file, {.on_warning = [](const std::string& warning) { CHECK(warning == ""); }});
        CHECK(image.width == width);
        CHECK(image.height == height);
        CHECK(image.channels == 3);
        CHECK(test::hash_of_elements<std::uint8_t>(image.pixels) == hash);
        ++files;
    }
    CHECK(files == 26);
}

TEST_CASE("images that decoders warn of have the pixels that Pillow decodes, and damaged ones are errors") {
    std::ifstream recorded(DPTK_TEST_SOURCE_DIR "/data/images/unusual_images_pillow.txt");
    std::size_t unusual = 0, damaged = 0, warnings = 0;
    for (std::string file; recorded >> file;) {
        CAPTURE(file);
        const auto bytes = dptk::detail::file_bytes(folder.parent_path() / file);
        if (file.starts_with("damaged/")) {
            std::string result;
            recorded >> result;
            CAPTURE(result);
            CHECK(problem_of(bytes).starts_with("x: byte "));
            ++damaged;
            continue;
        }
        std::size_t width = 0, height = 0;
        std::uint64_t hash = 0;
        recorded >> width >> height >> hash;
        CHECK(problem_of(bytes) == "");
        if (!problem_of(bytes).empty()) continue;
        const auto warn = [&](const std::string& warning) { warnings += warning.empty() ? 0 : 1; };
        const dptk::Image image = dptk::decode_image(bytes, file, {.on_warning = warn});
        CHECK(image.width == width);
        CHECK(image.height == height);
        CHECK(test::hash_of_elements<std::uint8_t>(image.pixels) == hash);
        ++unusual;
    }
    CHECK(unusual == 80);
    CHECK(warnings > 30);
    CHECK(damaged == 41);
}

TEST_CASE("a truncated image is an error with the offset, unless all of its pixels are there") {
    struct {
        std::string file;
        std::size_t missing;  // at the end of the file, without which Pillow has all pixels
    } const images[] = {{"rgb.jpg", 0},  {"progressive.jpg", 0}, {"cmyk.jpg", 0},
                        {"gray.jpg", 0}, {"gray_16.png", 20},    {"magick_interlaced.png", 20},
                        {"rgb.png", 21}, {"palette.png", 21}};
    for (const auto& [file, missing] : images) {
        CAPTURE(file);
        const Bytes whole = bytes_of(file);
        const dptk::Image image = dptk::decode_image(whole, "x");
        for (std::size_t length = 0; length < whole.size(); ++length) {
            CAPTURE(length);
            const Bytes part(whole.begin(), whole.begin() + static_cast<int>(length));
            if (length + missing < whole.size()) {
                CHECK(problem_of(part).starts_with("x: byte "));
            } else {
                CHECK(problem_of(part) == "");
                CHECK(dptk::decode_image(part, "x") == image);
            }
        }
    }
}

TEST_CASE("damaged images are errors that say what is wrong") {
    CHECK(problem_of({}) == "x: byte 0: expected a JPEG or PNG image, found an empty file");
    CHECK(problem_of(Bytes(100)) == "x: byte 0: expected a JPEG or PNG image, found another format");
    const Bytes png = bytes_of("rgb.png");
    const std::size_t header = find(png, "IHDR");
    CHECK(problem_of(changed(png, header + 4, {0, 0, 0, 40})) ==
          "x: byte 33: expected an intact PNG image, found: IHDR: CRC error");
    const std::size_t data = find(png, "IDAT");
    CHECK(problem_of(changed(png, data + 60, {1, 2, 3, 4})).find("expected an intact PNG image") !=
          std::string::npos);
    const Bytes jpeg = bytes_of("rgb.jpg");
    const std::size_t frame = find(jpeg, "\xff\xc0");
    CHECK(problem_of(changed(jpeg, frame + 5, {0, 0})).starts_with("x: byte "));  // a height of 0
    CHECK(problem_of(changed(jpeg, frame + 9, {2})).starts_with("x: byte "));     // two components
    const std::size_t scan = find(jpeg, "\xff\xda");
    CHECK(problem_of(changed(jpeg, scan + 30, {0xff, 0xd3})).find("expected an intact JPEG image, found: ") !=
          std::string::npos);
}

TEST_CASE("images with more pixels than max_pixels are refused before their memory is allocated") {
    CHECK(problem_of(bytes_of("rgb.png"), {.max_pixels = 1000}) ==
          "x: byte 41: expected an image of 1 to 1000 pixels, found 37 x 29");
    CHECK(
        problem_of(bytes_of("rgb.jpg"), {.max_pixels = 1000}).find("expected an image of 1 to 1000 pixels") !=
        std::string::npos);
    CHECK(problem_of(bytes_of("rgb.png"), {.max_pixels = 37 * 29}) == "");
    // A JPEG image that says that it has 65,500 x 65,500 pixels.
    const Bytes jpeg = bytes_of("rgb.jpg");
    CHECK(problem_of(changed(jpeg, find(jpeg, "\xff\xc0") + 5, {0xff, 0xdc, 0xff, 0xdc}))
              .find("expected an image of 1 to 178956970 pixels, found 65500 x 65500") != std::string::npos);
}

TEST_CASE("an intact progressive image with more than 500 scans is refused") {
    CHECK(problem_of(with_scans(500)) == "");
    CHECK(problem_of(with_scans(501)).find("expected an intact JPEG image, found: more than 500 scans") !=
          std::string::npos);
}

TEST_CASE("files that cannot be read are errors") {
    const auto problem = [](const std::filesystem::path& path) {
        try {
            static_cast<void>(dptk::read_image(path));
        } catch (const dptk::BackendError& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    CHECK(problem("/no/such/file.jpg") ==
          "/no/such/file.jpg: byte 0: expected a readable file, found: No such file or directory");
    CHECK(problem("/tmp") == "/tmp: byte 0: expected a readable file, found: a folder");
    CHECK(problem("/dev/null") == "/dev/null: byte 0: expected a readable file, found: no regular file");
}
