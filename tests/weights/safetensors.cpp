#include "dptk/weights/safetensors.hpp"

#include <doctest/doctest.h>
#include <dptk/core/error.hpp>
#include <dptk/weights/safetensors_writer.hpp>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "support/failing_call.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"

namespace {

using dptk::SafetensorsFile;

/// Returns a file with this header, and so many bytes after it.
std::string file_of(const std::string& header, std::size_t bytes) {
    std::string file(8, '\0');
    const std::uint64_t length = header.size();
    std::memcpy(file.data(), &length, sizeof length);
    return file + header + std::string(bytes, '\1');
}

std::string content_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

/// Returns the error of this type that opening the file throws.
template <class ErrorType = dptk::FormatError>
std::string error_of(const std::filesystem::path& path) {
    try {
        const SafetensorsFile file(path);
        return "";
    } catch (const ErrorType& error) {
        return error.what();
    }
}

/// A file with tensors of several types.
std::filesystem::path write_some(const TemporaryFolder& folder) {
    std::vector<float> weight{1, 2, 3, 4, 5, 6};
    std::vector<double> wide{-0.5};
    std::vector<std::int64_t> count{12345678901};
    std::vector<std::uint8_t> empty;
    const dptk::SafetensorsTensor tensors[] = {
        {"b.weight", {2, 3}, {weight.data(), 6, dptk::DType::f32}},
        {"a\"\\\u00e9", {}, {wide.data(), 1, dptk::DType::f64}},
        {"count", {1}, {count.data(), 1, dptk::DType::i64}},
        {"empty", {0, 4}, {empty.data(), 0, dptk::DType::u8}},
    };
    write_safetensors(folder / "some.safetensors", tensors, {{"format", "pt"}});
    return folder / "some.safetensors";
}

}  // namespace

TEST_CASE("what is written is read again, in the order of the format, and converted") {
    const TemporaryFolder folder;
    const SafetensorsFile file(write_some(folder));
    CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
    REQUIRE(file.entries().size() == 4);
    const char* const names[] = {"a\"\\\u00e9", "count", "b.weight", "empty"};
    for (std::size_t i = 0; i < 4; ++i) {
        CHECK(file.entries()[i].name == names[i]);
        CHECK(file.find(names[i]) == &file.entries()[i]);
    }
    CHECK(file.entries()[0].offset % 8 == 0);
    CHECK(file.find("other") == nullptr);
    CHECK(file.entries()[0].shape.empty());
    CHECK(file.entries()[3].shape == dptk::Shape{0, 4});
    std::vector<double> weight(6);
    file.read(*file.find("b.weight"), {weight.data(), 6, dptk::DType::f64});
    CHECK(weight == std::vector<double>{1, 2, 3, 4, 5, 6});
    std::int64_t count = 0;
    file.read(*file.find("count"), {&count, 1, dptk::DType::i64});
    CHECK(count == 12345678901);
    file.read(*file.find("empty"), {nullptr, 0, dptk::DType::u8});
    CHECK_THROWS_AS(file.read(*file.find("count"), {weight.data(), 6, dptk::DType::f64}),
                    dptk::ArgumentError);
    CHECK(content_of(folder / "some.safetensors").substr(8, 1) == "{");
    CHECK(std::distance(std::filesystem::directory_iterator(file.path().parent_path()), {}) == 1);
}

TEST_CASE("a file that is cut at any byte, or has bytes after its end, is an error with its offset") {
    const TemporaryFolder folder;
    const std::string whole = content_of(write_some(folder));
    for (std::size_t size = 0; size < whole.size(); ++size) {
        CAPTURE(size);
        const std::string error = error_of(folder.write("cut", whole.substr(0, size)));
        CHECK(test::contains(error, (folder / "cut").string() + ": byte "));
    }
    CHECK(test::contains(error_of(folder.write("long", whole + "x")), "found 1 more bytes"));
    for (std::size_t i = 0; i < whole.size(); ++i) {  // any other byte: an error, or other values
        std::string changed = whole;
        changed[i] = static_cast<char>(changed[i] ^ 0x15);
        static_cast<void>(error_of(folder.write("changed", changed)));
    }
}

TEST_CASE("each rule of the format is checked") {
    const TemporaryFolder folder;
    const auto fails = [&](const std::string& header, std::size_t bytes, const std::string& expected) {
        CAPTURE(header);
        const std::string error = error_of(folder.write("bad", file_of(header, bytes)));
        CAPTURE(error);
        CHECK(test::contains(error, (folder / "bad").string() + ": byte "));
        CHECK(test::contains(error, expected));
    };
    const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
    CHECK(error_of(folder.write("good", file_of("{" + a + "}   ", 8))).empty());
    CHECK(error_of(folder.write("good", file_of("{}", 0))).empty());
    fails("", 0, "expected a header that begins with {");
    fails(" {" + a + "}", 8, "expected a header that begins with {");
    fails("{" + a + "} x", 8, "expected JSON: ");
    fails("{" + a, 8, "expected JSON: ");
    fails("[]", 0, "begins with {");
    fails("{" + a + "," + a + "}", 8, "expected each name once, found \"a\" twice");
    fails(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8,
          "found \"dtype\" twice");
    fails("{" + a + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[9,10]}})", 10,
          "expected a data_offset of 8");
    fails("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[6,10]}})", 10,
          "expected a data_offset of 8");
    fails("{" + a + "}", 9, "expected the end of the file, found 1 more bytes");
    fails("{" + a + "}", 7, "the file ends before byte 8 of its data");
    fails(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8,
          "expected data_offsets of 12 bytes");
    fails(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "in ascending order");
    fails(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8]}})", 8, "expected two data_offsets");
    fails(R"({"a":{"dtype":"F32","shape":[1000000000],"data_offsets":[0,4000000000]}})", 8,
          "the file ends before byte");
    fails(R"({"a":{"dtype":"F64","shape":[4294967296,4294967296,2],"data_offsets":[0,0]}})", 0,
          "exceeds 2^64 bytes");
    fails(R"({"a":{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,0]}})", 0,
          "a number that is no integer");
    fails(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}})", 8, "a negative number");
    fails(R"({"a":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}})", 8, "a number that is no integer");
    fails("{" + a + R"(,"b":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[9,11]}})", 11,
          "expected a data_offset of 8");
    fails(R"({"a":{"dtype":"","shape":[2],"data_offsets":[0,2]}})", 2, "expected the name of a type");
    fails(R"({"a":{"dtype":1,"shape":[2],"data_offsets":[0,2]}})", 2, "found a number at \"dtype\"");
    fails(R"({"a":{"shape":[2],"data_offsets":[0,2]}})", 2,
          "expected dtype, shape and data_offsets of \"a\"");
    fails(R"({"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", 8, "found a list");
    fails(R"({"a":{"dtype":"F32","shape":{"x":1},"data_offsets":[0,8]}})", 8, "found an object");
    fails(R"({"a":null})", 8, "found null");
    fails(R"({"a":[1]})", 8, "found a list");
    fails(R"({"__metadata__":{"format":1}})", 0, "found a number");
    fails(R"({"__metadata__":{"format":true}})", 0, "found true or false");
    fails("{\"\xff\":{}}", 0, "expected JSON: ");
    std::string deep = R"({"a":)";
    for (int i = 0; i < 100000; ++i) deep += '[';
    fails(deep, 0, "found a list");

    std::string huge = file_of("{}", 0);
    for (const std::uint64_t length : {std::uint64_t{100'000'001}, ~std::uint64_t{0}, std::uint64_t{3}}) {
        std::memcpy(huge.data(), &length, sizeof length);
        CHECK(test::contains(error_of(folder.write("huge", huge)),
                             "byte 0: expected the length of a safetensors header"));
    }
    CHECK(test::contains(error_of(folder.write("zip", "PK\3\4 and more, as torch.save() writes")),
                         "scripts/convert-weights"));
    CHECK(test::contains(error_of<dptk::BackendError>(folder / "nothing"),
                         "byte 0: expected a readable file, found: No such file"));
    CHECK(test::contains(error_of<dptk::BackendError>(folder / "."), "found: a folder"));
    CHECK(test::contains(error_of<dptk::BackendError>("/dev/null"), "found: no regular file"));
}

TEST_CASE("a file with tensors of types that dptk lacks is read") {
    const TemporaryFolder folder;
    for (const char* type : {"F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "F6_E2M3", "F6_E3M2", "C128"}) {
        CAPTURE(type);
        const std::string header = std::string(R"({"a":{"dtype":")") + type +
                                   R"(","shape":[4],"data_offsets":[0,3]},)" +
                                   R"("b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})";
        const SafetensorsFile file(folder.write("quantized", file_of(header, 5)));
        REQUIRE(file.entries().size() == 1);
        std::uint8_t values[2] = {};
        file.read(*file.find("b"), {values, 2, dptk::DType::u8});
        CHECK(values[1] == 1);
        CHECK(file.find("a") == nullptr);
    }
}

TEST_CASE("a file that the system cannot read or write is an error of another type than a damaged file") {
    const TemporaryFolder folder;
    const std::string path = write_some(folder);
    const auto before = test::files_in(folder / "");
    CHECK(test::wrong_on_failing<dptk::BackendError>({"open", "read"}, path, path,
                                                     [&] { const SafetensorsFile file(path); }) == "");
    const SafetensorsFile file(path);
    std::vector<float> weight(6);
    CHECK(test::wrong_on_failing<dptk::BackendError>({"read"}, path, path, [&] {
              file.read(*file.find("b.weight"), {weight.data(), 6, dptk::DType::f32});
          }) == "");
    CHECK(test::wrong_on_failing<dptk::BackendError>({"open", "write", "fsync", "rename"}, path, path,
                                                     [&] { write_some(folder); }) == "");
    CHECK(test::files_in(folder / "") == before);
}

TEST_CASE("a file is written tensor by tensor, or not at all") {
    const TemporaryFolder folder;
    const std::filesystem::path path = write_some(folder);
    const std::string before = content_of(path);
    std::vector<float> values{1, 2, 3, 4};
    const dptk::Buffer four{values.data(), 4, dptk::DType::f32};
    const std::vector<dptk::SafetensorsEntry> tensors{{"b", dptk::DType::f32, {2, 2}, 0, 4},
                                                      {"a", dptk::DType::f32, {4}, 0, 4}};
    {
        dptk::SafetensorsWriter writer(path, tensors);
        writer.append(four);
        CHECK_THROWS_AS(writer.complete(), dptk::ArgumentError);
        CHECK_THROWS_AS(writer.append({values.data(), 3, dptk::DType::f32}), dptk::ArgumentError);
        CHECK_THROWS_AS(writer.append({values.data(), 4, dptk::DType::i32}), dptk::ArgumentError);
    }
    CHECK(content_of(path) == before);
    dptk::SafetensorsWriter writer(path, tensors);
    writer.append(four);
    writer.append(four);
    CHECK_THROWS_AS(writer.append(four), dptk::ArgumentError);
    writer.complete();
    const dptk::SafetensorsFile file(path);
    REQUIRE(file.entries().size() == 2);
    CHECK(file.entries()[0].name == "b");
    std::vector<float> read(4);
    file.read(file.entries()[1], {read.data(), 4, dptk::DType::f32});
    CHECK(read == values);
    CHECK_THROWS_AS(dptk::SafetensorsWriter(path, {tensors[0], tensors[0]}), dptk::ArgumentError);
}

TEST_CASE("tensors that cannot be written are errors, and leave the former file") {
    const TemporaryFolder folder;
    const std::filesystem::path path = write_some(folder);
    const std::string before = content_of(path);
    std::vector<float> values(4);
    const dptk::Buffer four{values.data(), 4, dptk::DType::f32};
    const auto refuses = [&](std::vector<dptk::SafetensorsTensor> tensors) {
        CHECK_THROWS_AS(write_safetensors(path, tensors), dptk::ArgumentError);
        CHECK(content_of(path) == before);
    };
    refuses({{"a", {4}, four}, {"a", {4}, four}});
    refuses({{"__metadata__", {4}, four}});
    refuses({{"a", {5}, four}});
    refuses({{"\xff", {4}, four}});
    refuses({{"a", {2}, {values.data(), 2, dptk::DType::c128}}});
    const dptk::SafetensorsTensor good[] = {{"a", {4}, four}};
    CHECK_THROWS_AS(write_safetensors(folder / "no such folder" / "x", good), dptk::BackendError);
    CHECK_THROWS_AS(write_safetensors("/dev/full/x", good), dptk::BackendError);
}
