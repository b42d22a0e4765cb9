#pragma once

#include "dptk/weights/safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/control/net/socket.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/detail/replacement_file.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

static_assert(std::endian::native == std::endian::little, "dptk: safetensors files are little-endian");

struct SafetensorsType {
    std::string_view name;
    DType dtype;
};

inline constexpr std::array<SafetensorsType, 14> safetensors_types{{
    {"F64", DType::f64},
    {"F32", DType::f32},
    {"F16", DType::f16},
    {"BF16", DType::bf16},
    {"I64", DType::i64},
    {"I32", DType::i32},
    {"I16", DType::i16},
    {"I8", DType::i8},
    {"U64", DType::u64},
    {"U32", DType::u32},
    {"U16", DType::u16},
    {"U8", DType::u8},
    {"BOOL", DType::boolean},
    {"C64", DType::c64},
}};

/// Counts the bytes that the JSON parser has read.
class CountingIterator {
  public:
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = const char&;
    using iterator_category = std::input_iterator_tag;

    CountingIterator(const char* place, std::size_t* count) : place_(place), count_(count) {}

    const char& operator*() const noexcept { return *place_; }
    CountingIterator& operator++() noexcept {
        ++place_;
        ++*count_;
        return *this;
    }
    CountingIterator operator++(int) noexcept {
        const CountingIterator before = *this;
        ++*this;
        return before;
    }
    friend bool operator==(const CountingIterator& a, const CountingIterator& b) noexcept {
        return a.place_ == b.place_;
    }
    friend bool operator!=(const CountingIterator& a, const CountingIterator& b) noexcept {
        return !(a == b);
    }

  private:
    const char* place_;
    std::size_t* count_;
};

/// Reads the header's JSON event by event, so that memory grows with its length only. A function that returns
/// false ends the parser.
class SafetensorsHeader {
  public:
    struct Tensor {
        std::string name;
        std::optional<DType> dtype;
        std::optional<Shape> shape;
        std::optional<std::vector<std::uint64_t>> offsets;
    };

    std::vector<Tensor> tensors;
    std::map<std::string, std::string> metadata;
    std::string problem;

    // The functions of nlohmann's SAX interface.
    // NOLINTBEGIN(readability-identifier-naming)
    bool null() { return fail("null"); }
    bool boolean(bool) { return fail("true or false"); }
    bool number_integer(std::int64_t) { return fail("a negative number"); }
    bool number_float(double, const std::string&) {
        return fail("a number that is no integer, or too large");
    }
    bool binary(std::vector<std::uint8_t>&) { return fail("bytes"); }

    bool number_unsigned(std::uint64_t number) {
        if (place_ != Place::list) return fail("a number");
        (in_shape_ ? shape_ : offsets_).push_back(number);
        return true;
    }

    bool string(std::string& text) {
        if (place_ == Place::metadata) {
            metadata[key_] = std::move(text);
            return true;
        }
        if (place_ != Place::tensor || key_ != "dtype") return fail("a string");
        const auto* const type = std::find_if(safetensors_types.begin(), safetensors_types.end(),
                                              [&](const SafetensorsType& one) { return one.name == text; });
        if (type == safetensors_types.end()) {
            problem = "expected a dtype that dptk has, found \"" + text + '"';
            return false;
        }
        tensors.back().dtype = type->dtype;
        return true;
    }

    bool start_object(std::size_t) {
        if (place_ == Place::begin) {
            place_ = Place::file;
        } else if (place_ == Place::file) {
            place_ = key_ == "__metadata__" ? Place::metadata : Place::tensor;
            if (place_ == Place::tensor) tensors.push_back({key_, {}, {}, {}});
        } else {
            return fail("an object");
        }
        keys_.emplace_back();
        return true;
    }

    bool key(std::string& text) {
        if (!keys_.back().insert(text).second) {
            problem = "expected each name once, found \"" + text + "\" twice";
            return false;
        }
        key_ = std::move(text);
        return true;
    }

    bool end_object() {
        keys_.pop_back();
        if (place_ == Place::tensor) {
            const Tensor& tensor = tensors.back();
            if (!tensor.dtype || !tensor.shape || !tensor.offsets) {
                problem = "expected dtype, shape and data_offsets of \"" + tensor.name + '"';
                return false;
            }
        }
        place_ = place_ == Place::file ? Place::end : Place::file;
        return true;
    }

    bool start_array(std::size_t) {
        if (place_ != Place::tensor || (key_ != "shape" && key_ != "data_offsets")) return fail("a list");
        place_ = Place::list;
        in_shape_ = key_ == "shape";
        (in_shape_ ? shape_ : offsets_).clear();
        return true;
    }

    bool end_array() {
        place_ = Place::tensor;
        if (in_shape_) {
            tensors.back().shape.emplace(shape_.begin(), shape_.end());
        } else {
            tensors.back().offsets = offsets_;
        }
        return true;
    }

    bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) {
        const std::string_view text = error.what();
        problem = "expected JSON: ";
        problem += text.substr(text.find("] ") == std::string_view::npos ? 0 : text.find("] ") + 2);
        return false;
    }
    // NOLINTEND(readability-identifier-naming)

  private:
    enum class Place { begin, file, metadata, tensor, list, end };

    bool fail(const char* found) {
        problem =
            text("expected tensors with dtype, shape and data_offsets, found ", found, " at \"", key_, '"');
        return false;
    }

    Place place_ = Place::begin;
    bool in_shape_ = false;
    std::string key_;
    std::vector<std::set<std::string>> keys_;  // those of the objects that are open
    std::vector<std::uint64_t> shape_;
    std::vector<std::uint64_t> offsets_;
};

[[noreturn]] DPTK_INLINE void throw_bad_safetensors(const std::filesystem::path& path, std::size_t offset,
                                                    std::string_view problem) {
    throw FormatError(text(path.string(), ": byte ", offset, ": ", problem));
}

/// Returns shape times the size of an element; none if it overflows.
[[nodiscard]] DPTK_INLINE std::optional<std::uint64_t> bytes_of_shape(const Shape& shape,
                                                                      DType dtype) noexcept {
    std::uint64_t bytes = dtype_size(dtype);
    for (const std::size_t size : shape) {
        if (__builtin_mul_overflow(bytes, std::uint64_t{size}, &bytes)) return std::nullopt;
    }
    return bytes;
}

/// Converts the header's tensors, sorted by their offsets. Throws FormatError unless they fill
/// `buffer_bytes`.
[[nodiscard]] DPTK_INLINE std::vector<SafetensorsEntry> checked_entries(
    const std::filesystem::path& path, std::vector<SafetensorsHeader::Tensor> tensors,
    std::size_t buffer_begin, std::size_t buffer_bytes) {
    std::vector<SafetensorsEntry> entries;
    for (SafetensorsHeader::Tensor& tensor : tensors) {
        const auto fail = [&](std::string_view problem) {
            throw_bad_safetensors(path, 8, text("tensor \"", tensor.name, "\": ", problem));
        };
        const std::vector<std::uint64_t>& offsets = *tensor.offsets;
        if (offsets.size() != 2) fail("expected two data_offsets");
        if (offsets[0] > offsets[1]) fail("expected data_offsets in ascending order");
        const std::optional<std::uint64_t> bytes = bytes_of_shape(*tensor.shape, *tensor.dtype);
        if (!bytes) fail("the size of the shape exceeds 2^64 bytes");
        if (*bytes != offsets[1] - offsets[0])
            fail(text("expected data_offsets of ", *bytes, " bytes, as the shape ", shape_text(*tensor.shape),
                      " has, found ", offsets[1] - offsets[0]));
        entries.push_back({std::move(tensor.name), *tensor.dtype, std::move(*tensor.shape),
                           static_cast<std::size_t>(offsets[0]),
                           static_cast<std::size_t>(*bytes / dtype_size(*tensor.dtype))});
    }
    std::stable_sort(entries.begin(), entries.end(),
                     [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
                         return a.offset != b.offset ? a.offset < b.offset : a.count < b.count;
                     });
    std::size_t end = 0;
    for (SafetensorsEntry& entry : entries) {
        if (entry.offset != end)
            throw_bad_safetensors(path, buffer_begin + std::min(end, buffer_bytes),
                                  text("tensor \"", entry.name, "\": expected a data_offset of ", end,
                                       ", where the tensor before it ends, found ", entry.offset));
        end += entry.bytes();
        if (end > buffer_bytes)
            throw_bad_safetensors(
                path, buffer_begin + buffer_bytes,
                text("tensor \"", entry.name, "\": the file ends before byte ", end, " of its data"));
        entry.offset += buffer_begin;
    }
    if (end != buffer_bytes)
        throw_bad_safetensors(
            path, buffer_begin + end,
            text("expected the end of the file, found ", buffer_bytes - end, " more bytes"));
    return entries;
}

}  // namespace detail

struct SafetensorsFile::File {
    detail::FileDescriptor descriptor;

    /// Reads bytes at an offset. Returns how many there are.
    [[nodiscard]] std::size_t read(void* to, std::size_t bytes, std::size_t offset,
                                   const std::filesystem::path& path) const {
        std::size_t done = 0;
        while (done < bytes) {
            const ssize_t got = ::pread(descriptor.number(), static_cast<std::byte*>(to) + done, bytes - done,
                                        static_cast<off_t>(offset + done));
            if (got < 0 && errno == EINTR) continue;
            if (got < 0)
                detail::throw_bad_safetensors(path, offset + done,
                                              detail::text("cannot be read: ", detail::errno_text(errno)));
            if (got == 0) break;
            done += static_cast<std::size_t>(got);
        }
        return done;
    }
};

DPTK_INLINE SafetensorsFile::SafetensorsFile(std::filesystem::path path)
    : path_(std::move(path)),
      file_(std::make_unique<File>(
          detail::FileDescriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)))) {
    const auto fail = [&](std::size_t offset, std::string_view problem) {
        detail::throw_bad_safetensors(path_, offset, problem);
    };
    struct stat status {};
    if (!file_->descriptor.is_open() || fstat(file_->descriptor.number(), &status) != 0)
        fail(0, detail::text("expected a readable file, found: ", detail::errno_text(errno)));
    if (!S_ISREG(status.st_mode))
        fail(0, S_ISDIR(status.st_mode) ? "expected a readable file, found: a folder"
                                        : "expected a readable file, found: no regular file");
    const auto size = static_cast<std::size_t>(status.st_size);
    std::uint64_t length = 0;
    constexpr std::uint64_t longest = 100'000'000;
    if (file_->read(&length, sizeof length, 0, path_) < sizeof length)
        fail(size, "expected the length of a safetensors header, found the end of the file");
    std::array<char, 4> magic{};
    std::memcpy(magic.data(), &length, magic.size());
    if (magic[0] == 'P' && magic[1] == 'K')
        fail(0,
             "expected a safetensors file, found a ZIP archive, as torch.save() writes it (.pth): "
             "scripts/convert-weights converts it");
    if (length > longest || length > size - sizeof length)
        fail(0, detail::text("expected the length of a safetensors header, at most ", longest,
                             " and within the file, found ", length));
    std::string header(static_cast<std::size_t>(length), '\0');
    const std::size_t got = file_->read(header.data(), header.size(), sizeof length, path_);
    if (got < header.size()) fail(sizeof length + got, "the file ends within its header");
    if (header.empty() || header[0] != '{') fail(sizeof length, "expected a header that begins with {");

    detail::SafetensorsHeader parsed;
    std::size_t read = 0;
    const detail::CountingIterator begin(header.data(), &read), end(header.data() + header.size(), &read);
    if (!nlohmann::json::sax_parse(begin, end, &parsed)) fail(sizeof length + read, parsed.problem);
    metadata_ = std::move(parsed.metadata);
    const std::size_t buffer_begin = sizeof length + header.size();
    entries_ = detail::checked_entries(path_, std::move(parsed.tensors), buffer_begin, size - buffer_begin);
    for (std::size_t i = 0; i < entries_.size(); ++i) by_name_.emplace(entries_[i].name, i);
}

DPTK_INLINE SafetensorsFile::~SafetensorsFile() = default;
DPTK_INLINE SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
DPTK_INLINE SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

DPTK_INLINE const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const noexcept {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &entries_[found->second];
}

DPTK_INLINE void SafetensorsFile::read(const SafetensorsEntry& entry, const Buffer& to) const {
    if (to.count != entry.count)
        throw ArgumentError(detail::text(path_.string(), ": tensor \"", entry.name, "\" has ", entry.count,
                                         " elements; expected memory for as many, found ", to.count));
    std::vector<std::byte> converted;
    void* memory = to.data;
    if (to.dtype != entry.dtype) {
        converted.resize(entry.bytes());
        memory = converted.data();
    }
    const std::size_t got = file_->read(memory, entry.bytes(), entry.offset, path_);
    if (got < entry.bytes())
        detail::throw_bad_safetensors(path_, entry.offset + got, "the file has become shorter");
    if (to.dtype != entry.dtype) detail::convert(to, {memory, entry.count, entry.dtype});
}

namespace detail {

/// Returns the header's text. Throws ArgumentError.
[[nodiscard]] DPTK_INLINE std::string safetensors_header(const std::filesystem::path& path,
                                                         std::span<const SafetensorsEntry> tensors,
                                                         const std::map<std::string, std::string>& metadata) {
    std::set<std::string_view> names{"__metadata__"};
    std::string header = "{";
    try {
        if (!metadata.empty()) header += "\"__metadata__\":" + nlohmann::json(metadata).dump() + ',';
        std::size_t end = 0;
        for (const SafetensorsEntry& tensor : tensors) {
            const auto fail = [&](std::string_view problem) {
                throw ArgumentError(text(path.string(), ": tensor \"", tensor.name, "\" ", problem));
            };
            const auto* const type =
                std::find_if(safetensors_types.begin(), safetensors_types.end(),
                             [&](const SafetensorsType& one) { return one.dtype == tensor.dtype; });
            if (!names.insert(tensor.name).second) fail("has a name that is another tensor's, or reserved");
            if (element_count(tensor.shape) != tensor.count)
                fail(text("has ", tensor.count, " elements, but the shape ", shape_text(tensor.shape)));
            if (type == safetensors_types.end())
                fail(text("is of ", dtype_name(tensor.dtype), ", for which the format has no name"));
            const std::size_t begin = end;
            end += tensor.bytes();
            header += nlohmann::json(tensor.name).dump() + ":{\"dtype\":\"";
            header += type->name;
            header += "\",\"shape\":" + nlohmann::json(tensor.shape).dump() +
                      text(",\"data_offsets\":[", begin, ',', end, "]},");
        }
    } catch (const nlohmann::json::type_error&) {
        throw ArgumentError(text(path.string(), ": expected names and metadata in UTF-8"));
    }
    if (header.size() > 1) header.pop_back();
    header += '}';
    header.resize((header.size() + 7) / 8 * 8, ' ');
    return header;
}

}  // namespace detail

DPTK_INLINE SafetensorsWriter::SafetensorsWriter(std::filesystem::path path,
                                                 std::vector<SafetensorsEntry> tensors,
                                                 const std::map<std::string, std::string>& metadata)
    : path_(std::move(path)), tensors_(std::move(tensors)) {
    const std::string header = detail::safetensors_header(path_, tensors_, metadata);
    const std::uint64_t length = header.size();
    file_ = std::make_unique<detail::ReplacementFile>(path_);
    file_->write(&length, sizeof length);
    file_->write(header.data(), header.size());
}

DPTK_INLINE SafetensorsWriter::~SafetensorsWriter() = default;

DPTK_INLINE void SafetensorsWriter::append(const Buffer& data) {
    if (next_ == tensors_.size())
        throw ArgumentError(detail::text(path_.string(), ": append() after the last tensor"));
    const SafetensorsEntry& tensor = tensors_[next_];
    if (data.dtype != tensor.dtype || data.count != tensor.count)
        throw ArgumentError(detail::text(
            path_.string(), ": append(): expected ", tensor.count, " elements of ", dtype_name(tensor.dtype),
            " of tensor \"", tensor.name, "\", got ", data.count, " of ", dtype_name(data.dtype)));
    file_->write(data.data, data.bytes());
    ++next_;
}

DPTK_INLINE void SafetensorsWriter::complete() {
    if (next_ != tensors_.size())
        throw ArgumentError(detail::text(path_.string(), ": complete() before tensor \"",
                                         tensors_[next_].name, "\" is written"));
    file_->complete();
}

DPTK_INLINE void write_safetensors(const std::filesystem::path& path,
                                   std::span<const SafetensorsTensor> tensors,
                                   const std::map<std::string, std::string>& metadata) {
    std::vector<const SafetensorsTensor*> order;
    for (const SafetensorsTensor& tensor : tensors) order.push_back(&tensor);
    // The format's recommended order: tensors of larger elements first, then by name.
    std::stable_sort(order.begin(), order.end(), [](const SafetensorsTensor* a, const SafetensorsTensor* b) {
        const std::size_t one = a->data.element_size(), other = b->data.element_size();
        return one != other ? one > other : a->name < b->name;
    });
    std::vector<SafetensorsEntry> entries;
    for (const SafetensorsTensor* tensor : order)
        entries.push_back({tensor->name, tensor->data.dtype, tensor->shape, 0, tensor->data.count});
    SafetensorsWriter writer(path, std::move(entries), metadata);
    for (const SafetensorsTensor* tensor : order) writer.append(tensor->data);
    writer.complete();
}

}  // namespace DPTK_NAMESPACE
