#pragma once

#include "dptk/weights/detail/safetensors_header.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/weights/detail/safetensors_types.hpp"

namespace DPTK_NAMESPACE::detail {

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
class SafetensorsHeaderParser {
  public:
    struct Tensor {
        std::string name;
        std::string type;
        std::optional<DType> dtype;  // none if dptk does not have the type
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
        if (text.empty()) {
            problem = "expected the name of a type, found \"\"";
            return false;
        }
        const auto* const type = std::find_if(safetensors_types.begin(), safetensors_types.end(),
                                              [&](const SafetensorsType& one) { return one.name == text; });
        if (type != safetensors_types.end()) tensors.back().dtype = type->dtype;
        tensors.back().type = std::move(text);
        return true;
    }

    bool start_object(std::size_t) {
        if (place_ == Place::begin) {
            place_ = Place::file;
        } else if (place_ == Place::file) {
            place_ = key_ == "__metadata__" ? Place::metadata : Place::tensor;
            if (place_ == Place::tensor) tensors.push_back({key_, {}, {}, {}, {}});
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
            if (tensor.type.empty() || !tensor.shape || !tensor.offsets) {
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

DPTK_INLINE void throw_bad_safetensors(const std::filesystem::path& path, std::size_t offset,
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

/// Throws FormatError unless a tensor's offsets match its shape and type. How large the elements of other
/// types are is not known.
DPTK_INLINE void check_offsets(const std::filesystem::path& path,
                               const SafetensorsHeaderParser::Tensor& tensor) {
    const auto fail = [&](std::string_view problem) {
        throw_bad_safetensors(path, safetensors_header_begin,
                              text("tensor \"", tensor.name, "\": ", problem));
    };
    const std::vector<std::uint64_t>& offsets = *tensor.offsets;
    if (offsets.size() != 2) fail("expected two data_offsets");
    if (offsets[0] > offsets[1]) fail("expected data_offsets in ascending order");
    if (!tensor.dtype) return;
    const std::optional<std::uint64_t> bytes = bytes_of_shape(*tensor.shape, *tensor.dtype);
    if (!bytes) fail("the size of the shape exceeds 2^64 bytes");
    if (*bytes != offsets[1] - offsets[0])
        fail(text("expected data_offsets of ", *bytes, " bytes, as the shape ", shape_text(*tensor.shape),
                  " has, found ", offsets[1] - offsets[0]));
}

/// Converts the header's tensors, sorted by their offsets. Throws FormatError unless they fill
/// `buffer_bytes`.
[[nodiscard]] DPTK_INLINE SafetensorsHeader
checked_tensors(const std::filesystem::path& path, std::vector<SafetensorsHeaderParser::Tensor> tensors,
                std::size_t buffer_begin, std::size_t buffer_bytes) {
    using Tensor = SafetensorsHeaderParser::Tensor;
    for (const Tensor& tensor : tensors) check_offsets(path, tensor);
    std::stable_sort(tensors.begin(), tensors.end(),
                     [](const Tensor& a, const Tensor& b) { return a.offsets.value() < b.offsets.value(); });
    SafetensorsHeader header;
    std::uint64_t end = 0;
    for (Tensor& tensor : tensors) {
        const std::uint64_t begin = (*tensor.offsets)[0];
        if (begin != end)
            throw_bad_safetensors(path, buffer_begin + std::min<std::uint64_t>(end, buffer_bytes),
                                  text("tensor \"", tensor.name, "\": expected a data_offset of ", end,
                                       ", where the tensor before it ends, found ", begin));
        end = (*tensor.offsets)[1];
        if (end > buffer_bytes)
            throw_bad_safetensors(
                path, buffer_begin + buffer_bytes,
                text("tensor \"", tensor.name, "\": the file ends before byte ", end, " of its data"));
        if (tensor.dtype) {
            const std::size_t count = (end - begin) / dtype_size(*tensor.dtype);
            header.entries.push_back({std::move(tensor.name), *tensor.dtype, std::move(*tensor.shape),
                                      buffer_begin + begin, count});
        } else {
            header.unreadable.push_back(
                {std::move(tensor.name), std::move(tensor.type), std::move(*tensor.shape)});
        }
    }
    if (end != buffer_bytes)
        throw_bad_safetensors(
            path, buffer_begin + end,
            text("expected the end of the file, found ", buffer_bytes - end, " more bytes"));
    return header;
}

DPTK_INLINE SafetensorsHeader parse_safetensors_header(const std::filesystem::path& path,
                                                       std::string_view header, std::size_t data_bytes) {
    if (header.empty() || header[0] != '{')
        throw_bad_safetensors(path, safetensors_header_begin, "expected a header that begins with {");
    SafetensorsHeaderParser parser;
    std::size_t read = 0;
    const CountingIterator begin(header.data(), &read), end(header.data() + header.size(), &read);
    if (!nlohmann::json::sax_parse(begin, end, &parser))
        throw_bad_safetensors(path, safetensors_header_begin + read, parser.problem);
    SafetensorsHeader all = checked_tensors(path, std::move(parser.tensors),
                                            safetensors_header_begin + header.size(), data_bytes);
    all.metadata = std::move(parser.metadata);
    return all;
}

}  // namespace DPTK_NAMESPACE::detail
