#pragma once

#include "dptk/data/readers/npy.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/parse.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/readers/detail/gzip_file.hpp"

namespace DPTK_NAMESPACE::detail {

struct NpyType {
    std::string_view descr;  ///< NumPy's name, without its byte order.
    DType dtype;
    std::size_t word;  ///< The bytes of one number; a complex number is two.
};

inline constexpr NpyType npy_types[] = {
    {"b1", DType::boolean, 1}, {"i1", DType::i8, 1},   {"u1", DType::u8, 1},  {"i2", DType::i16, 2},
    {"u2", DType::u16, 2},     {"i4", DType::i32, 4},  {"u4", DType::u32, 4}, {"i8", DType::i64, 8},
    {"u8", DType::u64, 8},     {"f2", DType::f16, 2},  {"f4", DType::f32, 4}, {"f8", DType::f64, 8},
    {"c8", DType::c64, 4},     {"c16", DType::c128, 8}};

/// The header of an .npy file: a Python dictionary such as
/// `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
class NpyHeader {
  public:
    std::string descr;
    bool fortran_order = false;
    std::vector<std::size_t> shape;

    /// `offset` is the place of `text` in the file.
    NpyHeader(const GzipFile& file, std::string_view text, std::size_t offset)
        : file_(file), text_(text), offset_(offset) {
        bool has_descr = false, has_order = false, has_shape = false;
        expect('{');
        while (!take('}')) {
            const std::string key = string();
            expect(':');
            if (key == "descr" && !std::exchange(has_descr, true)) {
                descr = string();
            } else if (key == "fortran_order" && !std::exchange(has_order, true)) {
                fortran_order = boolean();
            } else if (key == "shape" && !std::exchange(has_shape, true)) {
                tuple();
            } else {
                fail("each of the keys descr, fortran_order and shape once");
            }
            if (!take(',')) {
                expect('}');
                break;
            }
        }
        skip_spaces();
        if (at_ != text_.size() || !has_descr || !has_order || !has_shape)
            fail("a header with descr, fortran_order and shape");
    }

  private:
    [[noreturn]] void fail(std::string_view expected) const {
        const std::string_view rest = text_.substr(at_, 20);
        std::string found;
        for (const char c : rest) found += c >= ' ' && c <= '~' ? c : '?';
        file_.fail(offset_ + at_, expected, rest.empty() ? "the end of the header" : '"' + found + '"');
    }

    void skip_spaces() {
        while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    }

    [[nodiscard]] bool take(char wanted) {
        skip_spaces();
        if (at_ == text_.size() || text_[at_] != wanted) return false;
        ++at_;
        return true;
    }

    void expect(char wanted) {
        if (!take(wanted)) fail(std::string(1, wanted));
    }

    [[nodiscard]] std::string string() {
        skip_spaces();
        const char quote = at_ < text_.size() ? text_[at_] : ' ';
        const std::size_t end = text_.find(quote, at_ + 1);
        if ((quote != '\'' && quote != '"') || end == std::string_view::npos) fail("a string in quotes");
        const std::string_view content = text_.substr(at_ + 1, end - at_ - 1);
        at_ = end + 1;
        return std::string(content);
    }

    [[nodiscard]] bool boolean() {
        skip_spaces();
        for (const bool value : {true, false}) {
            const std::string_view name = value ? "True" : "False";
            if (!text_.substr(at_).starts_with(name)) continue;
            at_ += name.size();
            return value;
        }
        fail("True or False");
    }

    void tuple() {
        constexpr std::size_t most_dimensions = 64;
        expect('(');
        while (!take(')')) {
            skip_spaces();
            std::size_t digits = 0;
            while (at_ + digits < text_.size() && text_[at_ + digits] >= '0' && text_[at_ + digits] <= '9')
                ++digits;
            std::size_t size = 0;
            if (!parse_number(text_.substr(at_, digits), size) || shape.size() == most_dimensions)
                fail("at most 64 dimensions of at least 0");
            at_ += digits;
            shape.push_back(size);
            if (!take(',')) {
                expect(')');
                break;
            }
        }
    }

    const GzipFile& file_;
    std::string_view text_;
    std::size_t offset_;
    std::size_t at_ = 0;
};

[[nodiscard]] DPTK_INLINE std::string as_text(const std::vector<std::byte>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Changes the order of elements of `size` bytes from Fortran's, in which the first dimension is contiguous,
/// to row-major.
[[nodiscard]] DPTK_INLINE std::vector<std::byte> row_major(const std::vector<std::byte>& bytes,
                                                           const std::vector<std::size_t>& shape,
                                                           std::size_t size) {
    std::vector<std::byte> out(bytes.size());
    std::vector<std::size_t> place(shape.size(), 0), strides;
    std::size_t stride = 1, from = 0;
    for (const std::size_t extent : shape) {
        strides.push_back(stride);
        stride *= extent;
    }
    for (std::size_t to = 0; to < out.size(); to += size) {
        std::memcpy(out.data() + to, bytes.data() + from * size, size);
        for (std::size_t d = shape.size(); d-- > 0;) {  // the next element in row-major order
            from += strides[d];
            if (++place[d] < shape[d]) break;
            from -= shape[d] * strides[d];
            place[d] = 0;
        }
    }
    return out;
}

/// Reads an array whose number of dimensions is within limits.
[[nodiscard]] DPTK_INLINE FileArray read_npy_part(const std::filesystem::path& path, std::string_view what,
                                                  std::size_t fewest, std::size_t most) {
    FileArray array = read_npy(path);
    if (array.shape.size() >= fewest && array.shape.size() <= most) return array;
    throw FormatError(text(path.string(), ": expected ", what, " of ", fewest,
                           most == fewest ? "" : text(" or ", most), " dimensions, found shape ",
                           shape_text(array.shape)));
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE FileArray read_npy(const std::filesystem::path& path) {
    constexpr std::string_view magic = "\x93NUMPY";
    constexpr std::size_t most_header_bytes = std::size_t{1} << 20;
    detail::GzipFile file(path);
    const auto number = [&](std::size_t bytes) {
        std::size_t value = 0;
        const std::vector<std::byte> little_endian = file.read_exactly(bytes);
        for (std::size_t i = bytes; i-- > 0;)
            value = value << 8 | std::to_integer<std::size_t>(little_endian[i]);
        return value;
    };
    if (detail::as_text(file.read_exactly(magic.size())) != magic)
        file.fail(0, "the magic number of an .npy file", "other bytes");
    const std::size_t major = number(1), minor = number(1);
    if (major < 1 || major > 3 || minor != 0)
        file.fail(magic.size(), "format version 1.0, 2.0 or 3.0", detail::text(major, '.', minor));
    const std::size_t header_bytes = number(major == 1 ? 2 : 4);
    if (header_bytes > most_header_bytes)
        file.fail(magic.size() + 2, detail::text("a header of at most ", most_header_bytes, " bytes"),
                  detail::text(header_bytes));
    const std::size_t offset = file.offset();
    const std::string text = detail::as_text(file.read_exactly(header_bytes));
    detail::NpyHeader header(file, text, offset);

    const char order = header.descr.empty() ? ' ' : header.descr[0];
    const std::string_view name = std::string_view(header.descr).substr(header.descr.empty() ? 0 : 1);
    const auto* const type = detail::find(detail::npy_types, name, &detail::NpyType::descr);
    if (type == std::end(detail::npy_types) || std::string_view("<>|=").find(order) == std::string_view::npos)
        file.fail(offset, "numbers", "elements of type \"" + header.descr.substr(0, 40) + '"');
    FileArray array{.dtype = type->dtype, .shape = std::move(header.shape), .bytes = {}};
    std::size_t count = dtype_size(array.dtype);
    for (const std::size_t extent : array.shape) {
        if (extent != 0 && count > std::numeric_limits<std::ptrdiff_t>::max() / extent)
            file.fail(offset, "a shape whose bytes can be counted", detail::shape_text(array.shape));
        count *= extent;
    }
    array.bytes = file.read_exactly(count);
    file.expect_end();
    const bool is_swapped = order == (std::endian::native == std::endian::little ? '>' : '<');
    for (std::size_t i = 0; is_swapped && i < array.bytes.size(); i += type->word)
        std::reverse(array.bytes.begin() + static_cast<std::ptrdiff_t>(i),
                     array.bytes.begin() + static_cast<std::ptrdiff_t>(i + type->word));
    if (header.fortran_order && array.shape.size() > 1)
        array.bytes = detail::row_major(array.bytes, array.shape, dtype_size(array.dtype));
    return array;
}

DPTK_INLINE ImageDataset read_npy_images(const std::filesystem::path& images_path,
                                         const std::filesystem::path& labels_path,
                                         ImageDatasetOptions options) {
    const FileArray images = detail::read_npy_part(images_path, "images", 3, 4);
    const FileArray labels = detail::read_npy_part(labels_path, "labels", 1, 1);
    if (images.dtype != DType::u8)
        throw FormatError(detail::text(images_path.string(), ": expected pixels of type u8, found ",
                                       dtype_name(images.dtype)));
    if (images.shape[0] != labels.shape[0])
        throw FormatError(detail::text("expected as many images as labels, found ", images.shape[0], " in ",
                                       images_path.string(), " and ", labels.shape[0], " in ",
                                       labels_path.string()));
    const std::size_t classes = options.classes == 0 ? 256 : options.classes;
    std::vector<std::uint8_t> values(labels.shape[0]);
    visit_dtype(labels.dtype, [&](auto zero) {
        using T = decltype(zero);
        if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
            for (std::size_t i = 0; i < values.size(); ++i) {
                T label{};
                std::memcpy(&label, labels.bytes.data() + i * sizeof(T), sizeof(T));
                if (std::cmp_less(label, 0) ||
                    std::cmp_greater_equal(label, std::min<std::size_t>(classes, 256)))
                    throw FormatError(detail::text(labels_path.string(), ": expected labels in [0, ",
                                                   std::min<std::size_t>(classes, 256) - 1, "], found ",
                                                   +label, " for image ", i));
                values[i] = static_cast<std::uint8_t>(label);
            }
        } else {
            throw FormatError(detail::text(labels_path.string(),
                                           ": expected labels of an integer type, found ",
                                           dtype_name(labels.dtype)));
        }
    });
    return ImageDataset(detail::to_u8(images), images.shape, std::move(values), options);
}

}  // namespace DPTK_NAMESPACE
