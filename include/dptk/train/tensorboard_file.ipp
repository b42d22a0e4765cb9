#pragma once

#include "dptk/train/tensorboard_file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <memory>

#include "dptk/control/net/host.hpp"
#include "dptk/core/detail/crc32c.hpp"
#include "dptk/core/detail/errno_text.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/train/detail/png_encoder.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

inline constexpr std::string_view event_file_prefix = "events.out.tfevents.";

[[noreturn]] DPTK_INLINE void throw_not_written(const std::string& path, int error) {
    throw BackendError(text(path, ": cannot be written: ", errno_text(error)));
}

/// Creates a folder and those above it. Returns 0, or an errno value.
[[nodiscard]] DPTK_INLINE int create_folder(const std::string& folder) {
    const auto make = [&] { return ::mkdir(folder.c_str(), 0777) == 0 || errno == EEXIST ? 0 : errno; };
    const int error = make();
    if (error != ENOENT) return error;
    const std::size_t slash = folder.find_last_of('/', folder.find_last_not_of('/'));
    if (slash == std::string::npos || slash == 0) return error;
    const int error_above = create_folder(folder.substr(0, slash));
    return error_above != 0 ? error_above : make();
}

/// Returns the second for the name of a new event file: now, or later if the folder's other files require it.
[[nodiscard]] DPTK_INLINE std::uint64_t event_file_second(const std::string& folder) {
    struct Close {
        void operator()(DIR* directory) const noexcept { ::closedir(directory); }
    };
    const std::unique_ptr<DIR, Close> directory(::opendir(folder.c_str()));
    if (!directory) throw_not_written(folder, errno);
    constexpr std::uint64_t largest = 9'999'999'999;  // names are in the order of numbers of ten digits
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    auto second = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(now).count());
    while (const dirent* entry = ::readdir(directory.get())) {
        const std::string_view name = entry->d_name;
        if (!name.starts_with(event_file_prefix)) continue;
        std::uint64_t other = 0;
        std::from_chars(name.data() + event_file_prefix.size(), name.data() + name.size(), other);
        if (other >= second) second = other < largest ? other + 1 : largest;
    }
    return second;
}

DPTK_INLINE bool is_utf8(std::string_view bytes) noexcept {
    while (!bytes.empty()) {
        const auto byte = [&](std::size_t i) { return std::uint32_t{static_cast<unsigned char>(bytes[i])}; };
        const auto ones = static_cast<std::size_t>(std::countl_one(static_cast<unsigned char>(bytes[0])));
        const std::size_t length = ones == 0 ? 1 : ones;
        if (ones == 1 || ones > 4 || length > bytes.size()) return false;
        std::uint32_t code = byte(0) & (0xffU >> (ones + 1));
        for (std::size_t i = 1; i < length; ++i) {
            if (byte(i) >> 6 != 0b10) return false;
            code = code << 6 | (byte(i) & 0x3f);
        }
        constexpr std::uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
        const bool is_surrogate = code >= 0xd800 && code < 0xe000;
        if (code < smallest[length] || is_surrogate || code > 0x10ffff) return false;
        bytes.remove_prefix(length);
    }
    return true;
}

template <class Bits>
void append_little_endian(std::string& out, Bits bits) {
    for (std::size_t i = 0; i < sizeof bits; ++i) out += static_cast<char>(bits >> (8 * i));
}

/// A protobuf message (https://protobuf.dev/programming-guides/encoding), to which fields are appended.
class ProtobufMessage {
  public:
    ProtobufMessage& add_integer(std::uint32_t field, std::int64_t value) {
        begin(field, 0);
        append_varint(static_cast<std::uint64_t>(value));
        return *this;
    }
    ProtobufMessage& add_double(std::uint32_t field, double value) {
        begin(field, 1);
        append_little_endian(bytes_, std::bit_cast<std::uint64_t>(value));
        return *this;
    }
    ProtobufMessage& add_float(std::uint32_t field, float value) {
        begin(field, 5);
        append_little_endian(bytes_, std::bit_cast<std::uint32_t>(value));
        return *this;
    }
    /// Appends a string, or a message.
    ProtobufMessage& add_bytes(std::uint32_t field, std::string_view value) {
        begin(field, 2);
        append_varint(value.size());
        bytes_ += value;
        return *this;
    }

    [[nodiscard]] const std::string& bytes() const noexcept { return bytes_; }

  private:
    void begin(std::uint32_t field, std::uint32_t type) { append_varint(field << 3 | type); }
    void append_varint(std::uint64_t value) {
        for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
        bytes_ += static_cast<char>(value);
    }

    std::string bytes_;
};

/// Throws ArgumentError for a tag for which TensorBoard would reject a record.
DPTK_INLINE void check_tag(std::string_view tag) {
    if (tag.empty()) throw ArgumentError("TensorBoardFile: expected a tag, got an empty text");
    if (!is_utf8(tag))
        throw ArgumentError(text("TensorBoardFile: expected a tag in UTF-8, got \"", tag, '"'));
}

}  // namespace detail

DPTK_INLINE TensorBoardFile::TensorBoardFile(const std::string& folder) {
    if (folder.empty()) throw ArgumentError("TensorBoardFile: expected a folder, got an empty path");
    if (const int error = detail::create_folder(folder); error != 0) detail::throw_not_written(folder, error);
    const std::string prefix =
        detail::text(folder, '/', detail::event_file_prefix, detail::event_file_second(folder), '.',
                     detail::host_name(), '.', ::getpid(), '.');
    for (int number = 0; !file_.is_open(); ++number) {
        path_ = prefix + std::to_string(number);
        const int file = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file < 0 && errno != EEXIST) detail::throw_not_written(path_, errno);
        file_ = detail::FileDescriptor(file);
    }
    write_event(0, 3, "brain.Event:2");
}

DPTK_INLINE void TensorBoardFile::resume_at(std::int64_t step) {
    // TensorBoard's plugin_event_accumulator.py ignores the first SessionLog of a run.
    for (int i = 0; i < 2; ++i) write_event(step, 7, detail::ProtobufMessage().add_integer(1, 1).bytes());
}

DPTK_INLINE void TensorBoardFile::scalar(std::string_view tag, double value, std::int64_t step) {
    write_value(tag, step, detail::ProtobufMessage().add_float(2, static_cast<float>(value)).bytes());
}

DPTK_INLINE void TensorBoardFile::text(std::string_view tag, std::string_view content, std::int64_t step) {
    using detail::ProtobufMessage;
    if (!detail::is_utf8(content))
        throw ArgumentError(detail::text("TensorBoardFile: text \"", tag, "\": expected UTF-8"));
    // A tensor of type string (7) and shape [1], for the plugin "text".
    const ProtobufMessage size = ProtobufMessage().add_integer(1, 1);
    const ProtobufMessage shape = ProtobufMessage().add_bytes(2, size.bytes());
    const ProtobufMessage tensor =
        ProtobufMessage().add_integer(1, 7).add_bytes(2, shape.bytes()).add_bytes(8, content);
    const ProtobufMessage plugin = ProtobufMessage().add_bytes(1, "text");
    const ProtobufMessage metadata = ProtobufMessage().add_bytes(1, plugin.bytes());
    write_value(tag, step,
                ProtobufMessage().add_bytes(8, tensor.bytes()).add_bytes(9, metadata.bytes()).bytes());
}

DPTK_INLINE void TensorBoardFile::image(std::string_view tag, const Image& image, std::int64_t step) {
    constexpr std::size_t limit = std::size_t{1} << 30;
    const auto& [width, height, channels, pixels] = image;
    const bool is_valid = (channels == 1 || channels == 3) && width > 0 && height > 0 && width < limit &&
                          height < limit && width * height * channels == pixels.size() &&
                          pixels.size() + height < limit;
    if (!is_valid) {
        const std::size_t shape[] = {height, width, channels};
        throw ArgumentError(detail::text("TensorBoardFile: image \"", tag,
                                         "\": expected the pixels of an image of 1 or 3 channels, less than "
                                         "1 GiB, got shape ",
                                         detail::shape_text(shape), " with ", pixels.size(), " values"));
    }
    const detail::ProtobufMessage message = detail::ProtobufMessage()
                                                .add_integer(1, static_cast<std::int64_t>(height))
                                                .add_integer(2, static_cast<std::int64_t>(width))
                                                .add_integer(3, static_cast<std::int64_t>(channels))
                                                .add_bytes(4, detail::encode_png(image));
    write_value(tag, step, detail::ProtobufMessage().add_bytes(4, message.bytes()).bytes());
}

DPTK_INLINE void TensorBoardFile::flush() {
    if (::fsync(file_.number()) != 0) detail::throw_not_written(path_, errno);
}

DPTK_INLINE void TensorBoardFile::write_value(std::string_view tag, std::int64_t step,
                                              std::string_view fields) {
    detail::check_tag(tag);
    std::string value = detail::ProtobufMessage().add_bytes(1, tag).bytes();
    value += fields;
    write_event(step, 5, detail::ProtobufMessage().add_bytes(1, value).bytes());
}

DPTK_INLINE void TensorBoardFile::write_event(std::int64_t step, std::uint32_t field,
                                              std::string_view content) {
    const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
    detail::ProtobufMessage event;
    event.add_double(1, now.count());
    if (step != 0) event.add_integer(2, step);
    event.add_bytes(field, content);

    std::string record;
    detail::append_little_endian(record, std::uint64_t{event.bytes().size()});
    detail::append_little_endian(record, detail::masked_crc32c(record));
    record += event.bytes();
    detail::append_little_endian(record, detail::masked_crc32c(event.bytes()));

    // If the disk is full after a part of a record, the next record is written over that part.
    for (std::size_t done = 0; done < record.size();) {
        const ssize_t written = ::pwrite(file_.number(), record.data() + done, record.size() - done,
                                         static_cast<off_t>(size_ + done));
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) detail::throw_not_written(path_, errno);
        done += static_cast<std::size_t>(written);
    }
    size_ += record.size();
}

}  // namespace DPTK_NAMESPACE
