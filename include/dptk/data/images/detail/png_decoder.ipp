#pragma once

#include "dptk/data/images/detail/png_decoder.hpp"

#if !__has_include(<png.h>)
#error "dptk's image decoders need libpng: install libpng-dev (Debian, Ubuntu) or libpng-devel (Fedora)."
#endif

#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <vector>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/images/detail/decoder_limits.hpp"

namespace DPTK_NAMESPACE::detail {

/// A reader of libpng. libpng reports errors through C code, which exceptions must not pass: its handlers
/// jump back to guarded(), which throws.
class PngDecoder {
  public:
    PngDecoder(std::span<const std::byte> bytes, std::string_view name) : bytes_(bytes), name_(name) {
        png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &exit_with_message, &exit_with_message);
        if (png_ != nullptr) info_ = png_create_info_struct(png_);
        if (info_ == nullptr) {
            png_destroy_read_struct(&png_, &info_, nullptr);
            throw std::bad_alloc();
        }
    }
    ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }
    PngDecoder(const PngDecoder&) = delete;
    PngDecoder& operator=(const PngDecoder&) = delete;

    [[nodiscard]] Image decode(std::size_t max_pixels) {
        guarded([this] {
            png_set_read_fn(png_, this, &read);
            png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // check_pixels() is the limit
            ignore_chunks();
            png_read_info(png_, info_);
        });
        const std::size_t width = png_get_image_width(png_, info_);
        const std::size_t height = png_get_image_height(png_, info_);
        check_pixels(width, height, max_pixels, name_, offset_);
        const bool is_gray_16 =
            png_get_color_type(png_, info_) == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(png_, info_) == 16;
        guarded([this, is_gray_16] {
            png_set_expand(png_);                     // palettes to RGB, and gray values to 8 bits
            if (!is_gray_16) png_set_strip_16(png_);  // the high byte
            png_set_strip_alpha(png_);
            if (!is_gray_16) png_set_gray_to_rgb(png_);
            png_set_interlace_handling(png_);
            png_read_update_info(png_, info_);
        });
        const std::size_t row_bytes = png_get_rowbytes(png_, info_);
        if (row_bytes != width * (is_gray_16 ? 2 : 3)) fail(text("rows of ", row_bytes, " bytes"));
        std::vector<std::uint8_t> pixels(row_bytes * height);
        read_rows(pixels, row_bytes);
        guarded([this] { png_read_end(png_, nullptr); });
        return {width, height, 3, is_gray_16 ? saturated(pixels) : std::move(pixels)};
    }

  private:
    /// Calls `step`, which must not own anything: an error in it skips destructors.
    template <class Step>
    void guarded(Step step) {
        if (setjmp(jump_) != 0) fail(message_);
        step();
    }

    /// Chunks that do not change the pixels, whose damage is therefore no error.
    void ignore_chunks() {
        static constexpr png_byte names[] =
            "bKGD\0cHRM\0eXIf\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0sBIT\0sCAL\0"
            "sPLT\0sRGB\0tEXt\0tIME\0zTXt";
        png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, names, sizeof names / 5);
    }

    void read_rows(std::vector<std::uint8_t>& pixels, std::size_t row_bytes) {
        std::vector<png_bytep> rows(pixels.size() / row_bytes);
        for (std::size_t y = 0; y < rows.size(); ++y) rows[y] = pixels.data() + y * row_bytes;
        guarded([this, &rows] { png_read_image(png_, rows.data()); });
    }

    /// Returns RGB of 16-bit gray values, as Pillow converts them.
    [[nodiscard]] static std::vector<std::uint8_t> saturated(std::span<const std::uint8_t> gray) {
        std::vector<std::uint8_t> out;
        out.reserve(gray.size() / 2 * 3);
        for (std::size_t i = 0; i + 1 < gray.size(); i += 2)
            out.insert(out.end(), 3, gray[i] == 0 ? gray[i + 1] : std::uint8_t{255});
        return out;
    }

    [[noreturn]] void fail(std::string_view found) const {
        throw FormatError(text(name_, ": byte ", offset_, ": expected an intact PNG image, found: ", found));
    }

    [[noreturn]] static void exit_with_message(png_structp png, png_const_charp message) {
        auto& self = *static_cast<PngDecoder*>(png_get_error_ptr(png));
        std::snprintf(self.message_, sizeof self.message_, "%s", message);
        std::longjmp(self.jump_, 1);
    }

    static void read(png_structp png, png_bytep out, png_size_t count) {
        auto& self = *static_cast<PngDecoder*>(png_get_io_ptr(png));
        if (count > self.bytes_.size() - self.offset_) {
            self.offset_ = self.bytes_.size();
            exit_with_message(png, "the end of the file");
        }
        std::memcpy(out, self.bytes_.data() + self.offset_, count);
        self.offset_ += count;
    }

    std::span<const std::byte> bytes_;
    std::string_view name_;
    std::size_t offset_ = 0;
    png_structp png_ = nullptr;
    png_infop info_ = nullptr;
    std::jmp_buf jump_{};
    char message_[256] = "";
};

DPTK_INLINE Image decode_png(std::span<const std::byte> bytes, std::string_view name,
                             std::size_t max_pixels) {
    return PngDecoder(bytes, name).decode(max_pixels);
}

}  // namespace DPTK_NAMESPACE::detail
