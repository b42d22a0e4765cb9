#include "dptk/data/readers/idx.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "data/readers/files.hpp"
#include "support/failing_call.hpp"

namespace {

constexpr int u8 = 0x08;

std::string read_error(const std::filesystem::path& path) {
    return format_error_of([&] { static_cast<void>(dptk::read_idx(path)); });
}

/// Whether reading `path` fails with a message that starts with the path and the offset, and contains
/// `rest`.
bool fails_at(const std::filesystem::path& path, std::size_t offset, const std::string& rest) {
    const std::string message = read_error(path);
    CAPTURE(message);
    const bool right_place = message.rfind(path.string() + ": byte " + std::to_string(offset) + ": ", 0) == 0;
    const bool right_text = message.find(rest) != std::string::npos;
    CHECK(right_place);
    CHECK(right_text);
    return right_place && right_text;
}

template <class T>
std::vector<T> elements(const dptk::FileArray& array) {
    std::vector<T> out(array.bytes.size() / sizeof(T));
    std::memcpy(out.data(), array.bytes.data(), array.bytes.size());
    return out;
}

template <class T>
void check_element_type(int type, const std::string& big_endian, const std::vector<T>& expected) {
    const TemporaryFolder folder;
    const auto count = static_cast<std::uint32_t>(expected.size());
    const dptk::FileArray array =
        dptk::read_idx(folder.write("array", idx_header(type, {count}) + big_endian));
    CHECK(array.dtype == dptk::dtype_of<T>);
    CHECK(array.shape == std::vector<std::size_t>{expected.size()});
    CHECK(elements<T>(array) == expected);
}

/// Bytes 0, 1, 2, ... in shape [2, 3, 4].
std::string small_array() {
    std::string file = idx_header(u8, {2, 3, 4});
    for (char byte = 0; byte < 24; ++byte) file += byte;
    return file;
}

}  // namespace

TEST_CASE("a plain or compressed IDX file is read with its shape") {
    const TemporaryFolder folder;
    for (const auto& path :
         {folder.write("plain", small_array()), write_gzip(folder / "gzip", small_array())}) {
        CAPTURE(path.string());
        const dptk::FileArray array = dptk::read_idx(path);
        CHECK(array.dtype == dptk::DType::u8);
        CHECK(array.shape == std::vector<std::size_t>{2, 3, 4});
        REQUIRE(array.bytes.size() == 24);
        for (std::size_t i = 0; i < 24; ++i) CHECK(array.bytes[i] == std::byte(i));
    }
}

TEST_CASE("elements of every type are read in the host's byte order") {
    using namespace std::string_literals;
    check_element_type<std::uint8_t>(0x08, "\x01\xFF"s, {1, 255});
    check_element_type<std::int8_t>(0x09, "\x01\xFF"s, {1, -1});
    check_element_type<std::int16_t>(0x0B, "\x01\x02\xFF\xFE"s, {0x0102, -2});
    check_element_type<std::int32_t>(0x0C, "\x01\x02\x03\x04\xFF\xFF\xFF\xFE"s, {0x01020304, -2});
    check_element_type<float>(0x0D, "\x3F\xC0\0\0\xC0\0\0\0"s, {1.5F, -2.0F});
    check_element_type<double>(0x0E, "\x3F\xF8\0\0\0\0\0\0\xC0\0\0\0\0\0\0\0"s, {1.5, -2.0});
}

TEST_CASE("an IDX file larger than any piece of reading arrives whole") {
    std::string file = idx_header(u8, {1000, 1000});
    for (std::size_t i = 0; i < 1'000'000; ++i) file += static_cast<char>(i * 31 >> 3);
    const TemporaryFolder folder;
    for (const auto& path : {folder.write("plain", file), write_gzip(folder / "gzip", file)}) {
        const dptk::FileArray array = dptk::read_idx(path);
        REQUIRE(array.bytes.size() == 1'000'000);
        CHECK(std::memcmp(array.bytes.data(), file.data() + 12, 1'000'000) == 0);
    }
}

TEST_CASE("a dimension of zero makes an array without elements") {
    const TemporaryFolder folder;
    const dptk::FileArray array = dptk::read_idx(folder.write("empty", idx_header(u8, {0, 28, 28})));
    CHECK(array.shape == std::vector<std::size_t>{0, 28, 28});
    CHECK(array.bytes.empty());
}

TEST_CASE("a file that the system cannot read is an error with its reason, of another type than damage") {
    const TemporaryFolder folder;
    const std::string digits = DPTK_EXAMPLE_DATA_DIR "/digits/train-images-idx3-ubyte.gz";
    const auto read = [](const std::string& path) {
        return [path] { static_cast<void>(dptk::read_idx(path)); };
    };
    CHECK(test::wrong_on_failing<dptk::BackendError>({"open", "read"}, digits, digits, read(digits)) == "");
    CHECK_THROWS_WITH_AS(read(folder / "missing")(),
                         ((folder / "missing").string() +
                          ": byte 0: expected a readable file, found: No such file or directory")
                             .c_str(),
                         dptk::BackendError);
    CHECK_THROWS_AS(read(folder / "")(), dptk::BackendError);
}

TEST_CASE("a file cut anywhere in its header or data is refused, at the byte where it ends") {
    const TemporaryFolder folder;
    const std::string whole = small_array();
    for (std::size_t length = 0; length < whole.size(); ++length) {
        CAPTURE(length);
        const std::string cut = whole.substr(0, length);
        CHECK(fails_at(folder.write("plain", cut), length, "the end of the file after"));
        CHECK(fails_at(write_gzip(folder / "gzip", cut), length, "the end of the file after"));
    }
}

TEST_CASE("data after the end of the array is refused") {
    const TemporaryFolder folder;
    const std::string longer = small_array() + 'x';
    CHECK(fails_at(folder.write("plain", longer), 40, "expected the end of the file, found more data"));
    CHECK(fails_at(write_gzip(folder / "gzip", longer), 40, "expected the end of the file, found more data"));
}

TEST_CASE("a file that is not IDX is refused at its first bytes") {
    const TemporaryFolder folder;
    CHECK(fails_at(folder.write("png", "\x89PNG and so on"), 0, "bytes 0 0, found 137 80"));
    std::string second_byte = small_array();
    second_byte[1] = 1;
    CHECK(fails_at(folder.write("other", second_byte), 0, "bytes 0 0, found 0 1"));
}

TEST_CASE("every unknown type code is refused") {
    const TemporaryFolder folder;
    for (int type = 0; type < 256; ++type) {
        if (type == 8 || type == 9 || (type >= 11 && type <= 14)) continue;
        CHECK(
            fails_at(folder.write("array", idx_header(type, {1}) + "x"), 2, "found " + std::to_string(type)));
    }
}

TEST_CASE("an array without dimensions is refused") {
    const TemporaryFolder folder;
    CHECK(fails_at(folder.write("scalar", idx_header(u8, {}) + "x"), 3, "at least 1 dimension, found 0"));
}

TEST_CASE("dimensions whose product overflows are refused at the dimension that is too much") {
    const TemporaryFolder folder;
    constexpr std::uint32_t most = 0xFFFFFFFF;
    CHECK(fails_at(folder.write("u8", idx_header(u8, {most, most, most})), 12, "[4294967295, 4294967295"));
    CHECK(fails_at(folder.write("f64", idx_header(0x0E, {most, most})), 8, "[4294967295, 4294967295]"));
}

TEST_CASE("a small file that claims exabytes fails fast, and allocates no memory for them") {
    const TemporaryFolder folder;
    const std::string lie = idx_header(u8, {0xFFFFFFFF, 0xFFFFFFFF}) + "only this";
    const auto start = std::chrono::steady_clock::now();
    CHECK(fails_at(folder.write("plain", lie), 21,
                   "18446744065119617025 bytes of data, found the end of the file after 9"));
    CHECK(fails_at(write_gzip(folder / "gzip", lie), 21, "18446744065119617025 bytes of data"));
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(2));
}

TEST_CASE("gzip data that is cut or changed anywhere is never read as something else") {
    const TemporaryFolder folder;
    std::string file = idx_header(u8, {200});
    for (std::size_t i = 0; i < 200; ++i) file += static_cast<char>(i % 7 * i);
    const auto whole = write_gzip(folder / "whole", file);
    const std::string packed = file_content(whole);

    for (std::size_t length = 0; length < packed.size(); ++length) {
        CAPTURE(length);
        CHECK(read_error(folder.write("cut", packed.substr(0, length))) != "no error");
    }
    constexpr std::size_t header_bytes = 10;
    for (std::size_t i = header_bytes; i < packed.size(); ++i) {
        for (int bit = 0; bit < 8; ++bit) {
            CAPTURE(i);
            CAPTURE(bit);
            std::string changed = packed;
            changed[i] = static_cast<char>(changed[i] ^ 1 << bit);
            const auto path = folder.write("changed", changed);
            // A few bits of padding have no meaning.
            const bool harmless = read_error(path) == "no error";
            if (harmless) CHECK(dptk::read_idx(path).bytes == dptk::read_idx(whole).bytes);
        }
    }
}

TEST_CASE("corrupt gzip data is named as such, with the offset in the data") {
    const TemporaryFolder folder;
    const std::string packed = file_content(write_gzip(folder / "whole", small_array()));

    CHECK(
        fails_at(folder.write("cut", packed.substr(0, packed.size() - 3)), 40, "expected intact gzip data"));
    std::string changed = packed;
    changed[changed.size() - 6] ^= 1;
    CHECK(fails_at(folder.write("changed", changed), 0,
                   "expected intact gzip data, found incorrect data check"));
    CHECK(fails_at(folder.write("nothing", "\x1f\x8b"), 0, "expected intact gzip data"));
}
