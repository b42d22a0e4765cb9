// Files that NumPy has written (record_npy.py), and damaged ones.
#include "dptk/data/readers/npy.hpp"

#include <doctest/doctest.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "data/readers/files.hpp"

namespace {

using Shape = std::vector<std::size_t>;

std::string recorded(const std::string& name) {
    return std::string(DPTK_TEST_NPY_FOLDER) + "/" + name + ".npy";
}

std::string read_error(const std::filesystem::path& path) {
    return format_error_of([&] { static_cast<void>(dptk::read_npy(path)); });
}

/// Element k of the recorded arrays of this type.
template <class T>
T element(std::size_t k) {
    const auto number = static_cast<double>(k);
    if constexpr (std::is_same_v<T, bool>) {
        return k % 2 == 1;
    } else if constexpr (std::is_same_v<T, dptk::float16>) {
        return dptk::float16(static_cast<float>(number - 3));
    } else if constexpr (std::is_unsigned_v<T>) {
        return static_cast<T>(k);
    } else if constexpr (std::is_arithmetic_v<T>) {
        return static_cast<T>(number - 3);
    } else {
        return T(static_cast<typename T::value_type>(number), static_cast<typename T::value_type>(number));
    }
}

template <class T>
void check_array(const std::string& name, const Shape& shape) {
    CAPTURE(name);
    const dptk::FileArray array = dptk::read_npy(recorded(name));
    CHECK(array.dtype == dptk::dtype_of<T>);
    CHECK(array.shape == shape);
    std::size_t count = 1;
    for (const std::size_t extent : shape) count *= extent;
    REQUIRE(array.bytes.size() == count * sizeof(T));
    for (std::size_t k = 0; k < count; ++k) {
        T found{};
        std::memcpy(&found, array.bytes.data() + k * sizeof(T), sizeof(T));
        const T expected = element<T>(k);
        CHECK(std::memcmp(&found, &expected, sizeof(T)) == 0);
    }
}

/// Returns an .npy file of version 1.0 with this dictionary.
std::string npy(const std::string& header, const std::string& data) {
    const auto size = static_cast<char>(header.size());
    return std::string("\x93NUMPY\x01\x00", 8) + size + '\0' + header + data;
}

}  // namespace

TEST_CASE("arrays of each type and byte order are NumPy's") {
    check_array<bool>("bool", {2, 3});
    check_array<std::int8_t>("i1", {2, 3});
    check_array<std::uint8_t>("u1", {2, 3});
    for (const std::string order : {"little_", "big_"}) {
        check_array<std::int16_t>(order + "i2", {2, 3});
        check_array<std::uint16_t>(order + "u2", {2, 3});
        check_array<std::int32_t>(order + "i4", {2, 3});
        check_array<std::int64_t>(order + "i8", {2, 3});
        check_array<dptk::float16>(order + "f2", {2, 3});
        check_array<float>(order + "f4", {2, 3});
        check_array<double>(order + "f8", {2, 3});
        check_array<std::complex<float>>(order + "c8", {2, 3});
        check_array<std::complex<double>>(order + "c16", {2, 3});
    }
    check_array<std::uint32_t>("little_u4", {2, 3});
    check_array<std::uint64_t>("little_u8", {2, 3});
}

TEST_CASE("arrays of each shape, order and format version are NumPy's") {
    check_array<std::int32_t>("scalar", {});
    for (const std::string order : {"", "_fortran"}) {
        check_array<std::int32_t>("vector" + order, {7});
        check_array<std::int32_t>("matrix" + order, {2, 3});
        check_array<std::int32_t>("cube" + order, {2, 3, 4});
        check_array<std::int32_t>("empty" + order, {0, 3});
    }
    for (const char* version : {"version_1", "version_2", "version_3"})
        check_array<std::int32_t>(version, {2, 3});
    const TemporaryFolder folder;
    const auto packed = write_gzip(folder / "packed.npy.gz", file_content(recorded("cube")));
    CHECK(dptk::read_npy(packed).bytes == dptk::read_npy(recorded("cube")).bytes);
}

TEST_CASE("arrays of anything but numbers are errors") {
    CHECK(read_error(recorded("text")) ==
          recorded("text") + ": byte 10: expected numbers, found elements of type \"<U2\"");
    CHECK(read_error(recorded("object")) ==
          recorded("object") + ": byte 10: expected numbers, found elements of type \"|O\"");
    CHECK(read_error(recorded("struct")) ==
          recorded("struct") + ": byte 20: expected a string in quotes, found \"[('x', '<i4'), ('y',\"");
}

TEST_CASE("a file that is cut off at any length is an error") {
    const TemporaryFolder folder;
    for (const char* name : {"cube", "version_2"}) {
        const std::string whole = file_content(recorded(name));
        for (std::size_t length = 0; length < whole.size(); ++length) {
            const auto path = folder.write("cut.npy", whole.substr(0, length));
            CAPTURE(length);
            CHECK(read_error(path).rfind(path.string() + ": byte ", 0) == 0);
        }
        CHECK(read_error(folder.write("long.npy", whole + "x")).find("expected the end of the file") !=
              std::string::npos);
    }
}

TEST_CASE("damaged headers are errors with the place") {
    const TemporaryFolder folder;
    const auto error = [&](const std::string& content) {
        const auto path = folder.write("damaged.npy", content);
        const std::string message = read_error(path);
        CAPTURE(message);
        REQUIRE(message.rfind(path.string() + ": byte ", 0) == 0);
        return message.substr(path.string().size() + 2);
    };
    const std::string start = "{'descr': '<i4', 'fortran_order': ";
    CHECK(error("no array") == "byte 0: expected the magic number of an .npy file, found other bytes");
    CHECK(error(std::string("\x93NUMPY\x04\x00", 8)) ==
          "byte 6: expected format version 1.0, 2.0 or 3.0, found 4.0");
    CHECK(error(std::string("\x93NUMPY\x02\x00\xff\xff\xff\x7f", 12)).find("a header of at most") !=
          std::string::npos);
    CHECK(error(npy("", "")) == "byte 10: expected {, found the end of the header");
    CHECK(error(npy(start + "Maybe, 'shape': ()}", "")) ==
          "byte 44: expected True or False, found \"Maybe, 'shape': ()}\"");
    CHECK(error(npy(start + "False}", "")).find("with descr, fortran_order and shape") != std::string::npos);
    CHECK(error(npy(start + "False, 'shape': (-1,)}", "")).find("dimensions of at least 0") !=
          std::string::npos);
    CHECK(error(npy(start + "False, 'shape': (1,), 'shape': (1,)}", "")).find("once") != std::string::npos);
    CHECK(error(npy(start + "False, 'shape': (99999999999999999999,)}", "")).find("dimensions") !=
          std::string::npos);
    CHECK(error(npy(start + "False, 'shape': (4294967296, 4294967296)}", "")).find("can be counted") !=
          std::string::npos);
    CHECK(
        error(npy(start + "False, 'shape': (1000000000000,)}", "abcd")).find("the end of the file after 4") !=
        std::string::npos);
    CHECK(error(npy("{'descr': '', 'fortran_order': False, 'shape': ()}", "")).find("expected numbers") !=
          std::string::npos);
    CHECK(error(npy(start + "False, 'shape': ()} more", "")).find("expected a header") != std::string::npos);
    CHECK_THROWS_WITH_AS(read_error(folder / "missing.npy"), doctest::Contains("No such file"),
                         dptk::BackendError);
    CHECK_THROWS_WITH_AS(read_error(folder.write("x", "").parent_path()), doctest::Contains("expected"),
                         dptk::BackendError);
}

TEST_CASE("images and labels in two files are a dataset, with labels of any integer type") {
    const TemporaryFolder folder;
    const std::string pixels("\x01\x02\x03\x04\x05\x06\x07\x08", 8);
    const std::string images = "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2, 2)}";
    const auto path = folder.write("images.npy", npy(images, pixels));
    const auto labels = [&](const std::string& type, const std::string& data) {
        return folder.write("labels.npy",
                            npy("{'descr': '" + type + "', 'fortran_order': False, 'shape': (2,)}", data));
    };
    const dptk::ImageDataset dataset =
        dptk::read_npy_images(path, labels("<i8", std::string("\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0", 16)));
    CHECK(dataset.size() == 2);
    CHECK(dataset.classes() == 3);
    CHECK(dataset[1].label == 1);
    CHECK(dataset[1].pixels[3] == 8);
    const auto error = [&](const std::filesystem::path& own) {
        return format_error_of([&] { static_cast<void>(dptk::read_npy_images(path, own, {.classes = 2})); });
    };
    CHECK(error(labels("|i1", "\x01\xff")).find("expected labels in [0, 1], found -1 for image 1") !=
          std::string::npos);
    CHECK(error(labels("|u1", "\x01\x02")).find("found 2 for image 1") != std::string::npos);
    CHECK(error(labels("<f4", "12345678")).find("of an integer type, found f32") != std::string::npos);
    CHECK(error(path).find("expected labels of 1 dimensions") != std::string::npos);
    const auto none =
        folder.write("none.npy", npy("{'descr': '|u1', 'fortran_order': False, 'shape': (0,)}", ""));
    CHECK(error(none).find("expected as many images as labels, found 2 in") != std::string::npos);
}
