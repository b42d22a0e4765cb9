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
#include <string>
#include <utility>
#include <vector>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/images/detail/png_chunks.hpp"

namespace DPTK_NAMESPACE::detail {

/// A reader of libpng for the chunks that PngChunks selects. libpng reports errors through C code, which
/// exceptions must not pass: its handlers jump back to guarded(), which throws.
class PngDecoder {
  public:
    PngDecoder(std::span<const std::byte> bytes, std::string_view name)
        : chunks_(bytes, name), parts_(chunks_.intact_file()), name_(name) {
        png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &exit_with_message, &take_warning);
        if (png_ != nullptr) info_ = png_create_info_struct(png_);
        if (info_ == nullptr) {
            png_destroy_read_struct(&png_, &info_, nullptr);
            throw std::bad_alloc();
        }
    }
    ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }
    PngDecoder(const PngDecoder&) = delete;
    PngDecoder& operator=(const PngDecoder&) = delete;

    [[nodiscard]] DecodedImage decode(std::size_t max_pixels) {
        guarded([this] {
            png_set_read_fn(png_, this, &read);
            png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);      // check_pixels() is the limit
            png_set_option(png_, PNG_MAXIMUM_INFLATE_WINDOW, PNG_OPTION_ON);  // whatever the stream says
            png_set_crc_action(png_, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE);   // PngChunks has compared them
            png_read_info(png_, info_);
        });
        const std::size_t width = png_get_image_width(png_, info_);
        const std::size_t height = png_get_image_height(png_, info_);
        check_pixels(width, height, max_pixels, name_, offset());
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
        if (chunks_.colors() > 0 && png_get_palette_max(png_, info_) >= chunks_.colors())
            take_warning(png_, "PLTE: fewer colors than the pixels have");  // which are black
        return {{width, height, 3, is_gray_16 ? saturated(pixels) : std::move(pixels)},
                chunks_.warning().empty() ? std::string(warning_) : chunks_.warning()};
    }

  private:
    /// Calls `step`, which must not own anything: an error in it skips destructors. Returns false after one.
    template <class Step>
    [[nodiscard]] bool succeeds(Step step) {
        if (setjmp(jump_) != 0) return false;
        step();
        return true;
    }

    template <class Step>
    void guarded(Step step) {
        if (!succeeds(step)) fail(message_);
    }

    void read_rows(std::vector<std::uint8_t>& pixels, std::size_t row_bytes) {
        std::vector<png_bytep> rows(pixels.size() / row_bytes);
        for (std::size_t y = 0; y < rows.size(); ++y) rows[y] = pixels.data() + y * row_bytes;
        if (succeeds([this, &rows] { png_read_image(png_, rows.data()); })) return;
        if (!has_rows(rows.size())) fail(message_);
        take_warning(png_, message_);  // only the end of the compressed data is missing
    }

    [[nodiscard]] bool has_rows(std::size_t count) const {
        return png_get_interlace_type(png_, info_) == PNG_INTERLACE_NONE
                   ? png_get_current_row_number(png_) == count
                   : png_get_current_pass_number(png_) == PNG_INTERLACE_ADAM7_PASSES;
    }

    /// Returns RGB of 16-bit gray values, as Pillow converts them.
    [[nodiscard]] static std::vector<std::uint8_t> saturated(std::span<const std::uint8_t> gray) {
        std::vector<std::uint8_t> out;
        out.reserve(gray.size() / 2 * 3);
        for (std::size_t i = 0; i + 1 < gray.size(); i += 2)
            out.insert(out.end(), 3, gray[i] == 0 ? gray[i + 1] : std::uint8_t{255});
        return out;
    }

    [[noreturn]] void fail(std::string_view found) const { chunks_.fail(offset(), found); }

    /// Returns the offset in the file of the next byte to be read.
    [[nodiscard]] std::size_t offset() const noexcept { return chunks_.offset_of(parts_[part_]); }

    [[noreturn]] static void exit_with_message(png_structp png, png_const_charp message) {
        auto& self = *static_cast<PngDecoder*>(png_get_error_ptr(png));
        std::snprintf(self.message_, sizeof self.message_, "%s", message);
        std::longjmp(self.jump_, 1);
    }

    static void take_warning(png_structp png, png_const_charp message) {
        auto& self = *static_cast<PngDecoder*>(png_get_error_ptr(png));
        if (self.warning_[0] == '\0') std::snprintf(self.warning_, sizeof self.warning_, "%s", message);
    }

    static void read(png_structp png, png_bytep out, png_size_t count) {
        auto& self = *static_cast<PngDecoder*>(png_get_io_ptr(png));
        while (count > 0) {
            std::string_view& part = self.parts_[self.part_];
            const std::size_t taken = std::min(count, part.size());
            std::memcpy(out, part.data(), taken);
            out += taken;
            count -= taken;
            part.remove_prefix(taken);
            if (!part.empty()) continue;
            if (self.part_ + 1 == self.parts_.size()) exit_with_message(png, "the end of the file");
            ++self.part_;
        }
    }

    PngChunks chunks_;
    std::vector<std::string_view> parts_;
    std::size_t part_ = 0;
    std::string_view name_;
    png_structp png_ = nullptr;
    png_infop info_ = nullptr;
    std::jmp_buf jump_{};
    char message_[256] = "";
    char warning_[256] = "";
};

DPTK_INLINE DecodedImage decode_png(std::span<const std::byte> bytes, std::string_view name,
                                    std::size_t max_pixels) {
    return PngDecoder(bytes, name).decode(max_pixels);
}

}  // namespace DPTK_NAMESPACE::detail
