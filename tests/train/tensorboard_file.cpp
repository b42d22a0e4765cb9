// Tests the files that TensorBoardFile writes, byte by byte. tests/train/live compares them with what
// TensorBoard reads.
#include "dptk/train/tensorboard_file.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>
#include <dptk/core/detail/crc32c.hpp>
#include <dptk/core/error.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/file_size_limit.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"

namespace {

using namespace std::string_literals;
using dptk::TensorBoardFile;

std::string content_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

template <class Number>
Number number_at(const std::string& bytes, std::size_t place) {
    Number number{};
    REQUIRE(place + sizeof number <= bytes.size());
    std::memcpy(&number, bytes.data() + place, sizeof number);
    return number;
}

/// Returns the checksum bit by bit, without a table.
std::uint32_t slow_crc32c(std::string_view bytes) {
    std::uint32_t crc = 0xffffffff;
    for (const char byte : bytes) {
        crc ^= static_cast<unsigned char>(byte);
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0U);
    }
    return ~crc;
}

std::uint32_t masked(std::uint32_t crc) {
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8;
}

/// Returns the events of a file of complete records, whose checksums are checked.
std::vector<std::string> events_of(const std::filesystem::path& path) {
    const std::string file = content_of(path);
    std::vector<std::string> events;
    for (std::size_t place = 0; place < file.size();) {
        const auto length = static_cast<std::size_t>(number_at<std::uint64_t>(file, place));
        CHECK(number_at<std::uint32_t>(file, place + 8) == masked(slow_crc32c(file.substr(place, 8))));
        const std::string event = file.substr(place + 12, length);
        CHECK(number_at<std::uint32_t>(file, place + 12 + length) == masked(slow_crc32c(event)));
        events.push_back(event);
        place += 12 + length + 4;
    }
    return events;
}

std::string hex(std::string_view bytes) {
    std::string out;
    for (const char byte : bytes) {
        constexpr std::string_view digits = "0123456789abcdef";
        const auto value = static_cast<unsigned char>(byte);
        out += {digits[value / 16], digits[value % 16]};
    }
    return out;
}

/// Returns what follows the time of an event, which is checked to be a recent time.
std::string fields_after_time(const std::string& event) {
    CHECK(event[0] == '\x09');
    const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
    CHECK(std::abs(number_at<double>(event, 1) - now.count()) < 600);
    return hex(event.substr(9));
}

/// Returns the value of an event of a scalar, which is its last field.
float value_of(const std::string& event) {
    return number_at<float>(event, event.size() - 4);
}

/// Returns the text of the error of type `Error` that the call throws.
template <class Error, class Call>
std::string error_of(Call&& call) {
    try {
        call();
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

dptk::Image image_of(std::size_t width, std::size_t height, std::size_t channels) {
    return {width, height, channels, std::vector<std::uint8_t>(width * height * channels, 7)};
}

}  // namespace

TEST_CASE("the checksums have the check values of their definitions") {
    CHECK(dptk::detail::crc32c("123456789") == 0xe3069283);
    CHECK(dptk::detail::crc32("123456789") == 0xcbf43926);
    CHECK(dptk::detail::crc32c(std::string(32, '\0')) == 0x8a9136aa);  // RFC 3720, B.4
    CHECK(dptk::detail::crc32c(std::string(32, '\xff')) == 0x62a8ab43);
    CHECK(dptk::detail::crc32c("") == 0);
    CHECK(dptk::detail::crc32c("56789", dptk::detail::crc32c("1234")) == 0xe3069283);
    CHECK(dptk::detail::crc32("56789", dptk::detail::crc32("1234")) == 0xcbf43926);
    CHECK(dptk::detail::masked_crc32c("123456789") == masked(0xe3069283));
}

TEST_CASE("each event is a record with the bytes that TensorFlow writes") {
    const TemporaryFolder folder;
    TensorBoardFile file((folder / "run").string());
    file.scalar("loss", 0.25, 300);
    file.scalar("l", 0, -1);
    file.scalar("l", 0, 0);
    file.resume_at(7);
    file.text("t", "hi", 2);
    file.text("t", "", std::numeric_limits<std::int64_t>::max());
    CHECK(hex(content_of(file.path()).substr(0, 13)) == "1800000000000000a37f4b2209");
    std::vector<std::string> fields;
    for (const std::string& event : events_of(file.path())) fields.push_back(fields_after_time(event));
    // From Event.SerializeToString() of TensorBoard 2.21.
    const std::vector<std::string> expected = {
        "1a0d627261696e2e4576656e743a32",
        "10ac022a0d0a0b0a046c6f7373150000803e",
        "10ffffffffffffffffff012a0a0a080a016c1500000000",
        "2a0a0a080a016c1500000000",
        "10073a020801",
        "10073a020801",
        "10022a1d0a1b0a0174420c0807120412020801420268694a080a060a0474657874",
        "10ffffffffffffffff7f2a1b0a190a0174420a08071204120208014200"
        "4a080a060a0474657874",
    };
    CHECK(fields == expected);
}

TEST_CASE("a scalar keeps NaN, infinities and signed zeros, and is rounded to float") {
    const TemporaryFolder folder;
    TensorBoardFile file((folder / "run").string());
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const double values[] = {infinity, -infinity, -0.0, 0.1, 1e300, std::numeric_limits<double>::quiet_NaN()};
    for (const double value : values) file.scalar("a", value, 1);
    const std::vector<std::string> events = events_of(file.path());
    REQUIRE(events.size() == 7);
    CHECK(value_of(events[1]) == std::numeric_limits<float>::infinity());
    CHECK(value_of(events[2]) == -std::numeric_limits<float>::infinity());
    CHECK(std::signbit(value_of(events[3])));
    CHECK(value_of(events[4]) == 0.1F);
    CHECK(value_of(events[5]) == std::numeric_limits<float>::infinity());
    CHECK(std::isnan(value_of(events[6])));
}

TEST_CASE("tags and texts may be any UTF-8; other bytes are errors, and leave no record") {
    const TemporaryFolder folder;
    TensorBoardFile file((folder / "run").string());
    const std::string good[] = {
        "a/b c",         "\u00e9",     "\u20ac",     "\U0001f600", "\u0080\u07ff", "\u0800\ud7ff",
        "\ue000\uffff"s, "\U00010000", "\U0010ffff", "a\0b"s,      "\n",           std::string(200, 'x')};
    std::size_t records = 1;
    for (const std::string& tag : good) {
        file.scalar(tag, 1, 1);
        file.text("t", tag, 1);
        records += 2;
        CHECK(test::contains(events_of(file.path())[records - 2], tag));
    }
    const std::string bad[] = {"\x80",
                               "\xc3",
                               "\xc0\x80",
                               "\xc1\xbf",
                               "\xe0\x9f\xbf",
                               "\xed\xa0\x80",
                               "\xed\xbf\xbf",
                               "\xe2\x82",
                               "\xe2\x28\xa1",
                               "a\xff",
                               "\xf0\x8f\xbf\xbf",
                               "\xf4\x90\x80\x80",
                               "\xf5\x80\x80\x80",
                               "\xf8\x88\x80\x80\x80",
                               "\u00e9\xa9"};
    for (const std::string& tag : bad) {
        CAPTURE(hex(tag));
        CHECK(error_of<dptk::ArgumentError>([&] { file.scalar(tag, 1, 1); }) ==
              "TensorBoardFile: expected a tag in UTF-8, got \"" + tag + '"');
        CHECK(error_of<dptk::ArgumentError>([&] { file.text("t", tag, 1); }) ==
              "TensorBoardFile: text \"t\": expected UTF-8");
        CHECK_THROWS_AS(file.image(tag, image_of(1, 1, 1), 1), dptk::ArgumentError);
    }
    CHECK(error_of<dptk::ArgumentError>([&] { file.scalar("", 1, 1); }) ==
          "TensorBoardFile: expected a tag, got an empty text");
    CHECK(events_of(file.path()).size() == records);
}

TEST_CASE("an image is a PNG file with its size and checksums") {
    const TemporaryFolder folder;
    TensorBoardFile file((folder / "run").string());
    file.image("i", {.width = 3, .height = 2, .channels = 1, .pixels = {0, 50, 100, 150, 200, 255}}, 2);
    file.image("i", {.width = 1, .height = 1, .channels = 3, .pixels = {1, 2, 3}}, 3);
    const std::vector<std::string> events = events_of(file.path());
    REQUIRE(events.size() == 3);
    // The PNG files were written by Python's zlib at level 0.
    CHECK(fields_after_time(events[1]) ==
          "10022a5b0a590a01692254080210031801224c"
          "89504e470d0a1a0a0000000d4948445200000003000000020800000000b81f39c6"
          "00000013494441547801010800f7ff000032640096c8ff077902f4494f8bc4"
          "0000000049454e44ae426082");
    CHECK(fields_after_time(events[2]) ==
          "10032a570a550a016922500801100118032248"
          "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
          "0000000f494441547801010400fbff00010203000e00072da233ec"
          "0000000049454e44ae426082");
}

TEST_CASE("an image without pixels, or of another size or number of channels, is an error") {
    const TemporaryFolder folder;
    TensorBoardFile file((folder / "run").string());
    const auto refuses = [&](const dptk::Image& image) {
        CHECK_THROWS_AS(file.image("i", image, 1), dptk::ArgumentError);
    };
    refuses({});
    refuses(image_of(2, 2, 2));
    refuses(image_of(2, 2, 4));
    refuses(image_of(0, 2, 3));
    refuses(image_of(2, 0, 3));
    constexpr std::size_t half = std::size_t{1} << 32;
    refuses({.width = half, .height = half, .channels = 1, .pixels = {}});
    dptk::Image image = image_of(4, 2, 3);
    image.pixels.pop_back();
    CHECK(
        error_of<dptk::ArgumentError>([&] { file.image("i", image, 1); }) ==
        "TensorBoardFile: image \"i\": expected the pixels of an image of 1 or 3 channels, less than 1 GiB, "
        "got shape [2, 4, 3] with 23 values");
    CHECK(events_of(file.path()).size() == 1);
}

TEST_CASE("folders are created, and each file has a new name after those of all files of its folder") {
    const TemporaryFolder folder;
    std::vector<std::string> paths;
    for (const char* name : {"a/b/c", "a/b/c/", "a//b/c", "a/b/./c"}) {
        TensorBoardFile file((folder / name).string());
        file.scalar("tag", 1, 1);
        paths.push_back(std::filesystem::canonical(file.path()).string());
    }
    folder.write("a/b/c/events.out.tfevents.4000000000.x.1.0", "");
    folder.write("a/b/c/events.out.tfevents.late", "");
    folder.write("a/b/c/other.5000000000", "");
    TensorBoardFile last(folder / "a/b/c");  // a path converts to a string
    CHECK(test::contains(last.path(), "/events.out.tfevents.4000000001."));
    CHECK(test::contains(last.path(), "." + std::to_string(::getpid()) + ".0"));
    paths.push_back(last.path());
    CHECK(std::is_sorted(paths.begin(), paths.end()));
    CHECK(std::adjacent_find(paths.begin(), paths.end()) == paths.end());
    for (std::size_t i = 0; i < 4; ++i) CHECK(events_of(paths[i]).size() == 2);
}

TEST_CASE("a file may be moved, and the next file of its folder does not overwrite it") {
    const TemporaryFolder folder;
    const std::string first = TensorBoardFile((folder / "run").string()).path();
    TensorBoardFile moved((folder / "run").string());
    TensorBoardFile file = std::move(moved);
    file.scalar("a", 1, 1);
    moved = std::move(file);
    moved.scalar("a", 1, 2);
    moved.flush();
    CHECK(events_of(first).size() == 1);
    CHECK(events_of(moved.path()).size() == 3);
}

TEST_CASE("a file whose name would be that of another file gets another number") {
    const TemporaryFolder folder;
    std::filesystem::create_directory(folder / "run");
    folder.write("run/events.out.tfevents.9999999999.x.1.0", "");  // no later second has ten digits
    folder.write("run/events.out.tfevents.18446744073709551615.x.1.0", "");
    folder.write("run/events.out.tfevents.99999999999999999999.x.1.0", "");
    std::vector<TensorBoardFile> files;
    for (int i = 0; i < 3; ++i) {
        files.emplace_back((folder / "run").string());
        CHECK(test::contains(files.back().path(), "/events.out.tfevents.9999999999."));
        CHECK(files.back().path().ends_with("." + std::to_string(::getpid()) + "." + std::to_string(i)));
    }
    for (const TensorBoardFile& file : files) CHECK(events_of(file.path()).size() == 1);
}

TEST_CASE("a folder that cannot be created or written is an error with its path") {
    const TemporaryFolder folder;
    const std::string taken = folder.write("taken", "content").string();
    CHECK(error_of<dptk::BackendError>([&] { TensorBoardFile file(taken); }) ==
          taken + ": cannot be written: Not a directory");
    CHECK(error_of<dptk::BackendError>([&] { TensorBoardFile file(taken + "/run"); }) ==
          taken + "/run: cannot be written: Not a directory");
    CHECK(content_of(taken) == "content");
    CHECK(error_of<dptk::BackendError>([&] { TensorBoardFile file("/proc/dptk/run"); }) ==
          "/proc/dptk/run: cannot be written: No such file or directory");
    CHECK(error_of<dptk::ArgumentError>([&] { TensorBoardFile file(""); }) ==
          "TensorBoardFile: expected a folder, got an empty path");
    if (::geteuid() == 0) {
        MESSAGE("SKIPPED: root may write to all folders");
        return;
    }
    const std::string locked = (folder / "locked").string();
    std::filesystem::create_directory(locked);
    std::filesystem::permissions(locked,
                                 std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
    CHECK(error_of<dptk::BackendError>([&] { TensorBoardFile file(locked + "/run"); }) ==
          locked + "/run: cannot be written: Permission denied");
    CHECK(test::contains(error_of<dptk::BackendError>([&] { TensorBoardFile file(locked); }),
                         ": cannot be written: Permission denied"));
}

TEST_CASE("a record that does not fit on the disk is an error, and later records replace it") {
    const TemporaryFolder folder;
    TensorBoardFile file((folder / "run").string());
    file.scalar("a", 1, 1);
    const std::size_t size = content_of(file.path()).size();
    {
        const test::FileSizeLimit limit(size + 20);
        for (int i = 0; i < 2; ++i) {
            CHECK(error_of<dptk::BackendError>([&] { file.image("b", image_of(9, 9, 3), 1); }) ==
                  file.path() + ": cannot be written: File too large");
        }
        CHECK(content_of(file.path()).size() == size + 20);  // a part of the record
    }
    file.text("b", std::string(1000, 'x'), 2);
    file.scalar("a", 2, 2);
    CHECK(events_of(file.path()).size() == 4);
    const test::FileSizeLimit limit(10);
    CHECK(test::contains(
        error_of<dptk::BackendError>([&] { TensorBoardFile other((folder / "run").string()); }),
        ": cannot be written: File too large"));
}
