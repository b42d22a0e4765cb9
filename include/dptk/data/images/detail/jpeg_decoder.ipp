#pragma once

#include "dptk/data/images/detail/jpeg_decoder.hpp"

#if !__has_include(<jpeglib.h>)
#error \
    "dptk's image decoders need libjpeg-turbo: install libjpeg-dev (Debian, Ubuntu) or libjpeg-turbo-devel (Fedora)."
#endif

#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <jpeglib.h>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/images/detail/decoder_limits.hpp"

namespace DPTK_NAMESPACE::detail {

/// A decompressor of libjpeg. libjpeg reports errors through C code, which exceptions must not pass: its
/// handlers jump back to guarded(), which throws.
class JpegDecoder {
  public:
    JpegDecoder(std::span<const std::byte> bytes, std::string_view name) : bytes_(bytes), name_(name) {
        info_.err = jpeg_std_error(&errors_.manager);
        errors_.manager.error_exit = &exit_with_error;
        errors_.manager.emit_message = &exit_with_warning;
        progress_.progress_monitor = &limit_scans;
        guarded([this] {
            jpeg_create_decompress(&info_);
            info_.progress = &progress_;
            jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes_.data()), bytes_.size());
        });
    }
    ~JpegDecoder() { jpeg_destroy_decompress(&info_); }
    JpegDecoder(const JpegDecoder&) = delete;
    JpegDecoder& operator=(const JpegDecoder&) = delete;

    [[nodiscard]] Image decode(std::size_t max_pixels) {
        guarded([this] { jpeg_read_header(&info_, TRUE); });
        check_pixels(info_.image_width, info_.image_height, max_pixels, name_, offset());
        switch (info_.num_components) {
            case 1: info_.out_color_space = JCS_GRAYSCALE; break;
            case 3: info_.out_color_space = JCS_RGB; break;
            case 4: info_.out_color_space = JCS_CMYK; break;
            default: fail(text("an image with ", info_.num_components, " components"));
        }
        guarded([this] { jpeg_start_decompress(&info_); });
        Image image{info_.output_width, info_.output_height, 3, {}};
        image.pixels.resize(image.width * image.height * 3);
        read_rows(image);
        guarded([this] { jpeg_finish_decompress(&info_); });
        return image;
    }

  private:
    struct Errors {
        jpeg_error_mgr manager{};  // the first member: libjpeg passes its address
        std::jmp_buf jump{};
        char message[JMSG_LENGTH_MAX] = "";
    };

    /// Calls `step`, which must not own anything: an error in it skips destructors.
    template <class Step>
    void guarded(Step step) {
        if (setjmp(errors_.jump) != 0) fail(errors_.message);
        step();
    }

    void read_rows(Image& image) {
        std::vector<std::uint8_t> row(info_.out_color_space == JCS_RGB
                                          ? 0
                                          : image.width * static_cast<std::size_t>(info_.output_components));
        for (std::size_t y = 0; y < image.height; ++y) {
            std::uint8_t* const out = image.pixels.data() + y * image.width * 3;
            JSAMPROW into = row.empty() ? out : row.data();
            guarded([this, &into] { jpeg_read_scanlines(&info_, &into, 1); });
            if (info_.out_color_space == JCS_GRAYSCALE) {
                for (std::size_t x = 0; x < image.width; ++x)
                    out[3 * x] = out[3 * x + 1] = out[3 * x + 2] = row[x];
            } else if (info_.out_color_space == JCS_CMYK) {
                for (std::size_t x = 0; x < image.width; ++x) convert_cmyk(&row[4 * x], out + 3 * x);
            }
        }
    }

    /// Converts a pixel as Pillow does. The file has the complements of CMYK, as Adobe's programs write it.
    static void convert_cmyk(const std::uint8_t* from, std::uint8_t* to) {
        const unsigned light = from[3];
        for (int channel = 0; channel < 3; ++channel) {
            const unsigned product = (255U - from[channel]) * light + 128;
            to[channel] = static_cast<std::uint8_t>(light - ((product >> 8) + product) / 256);
        }
    }

    [[nodiscard]] std::size_t offset() const noexcept {
        return info_.src == nullptr ? 0 : bytes_.size() - info_.src->bytes_in_buffer;
    }

    [[noreturn]] void fail(std::string_view found) const {
        throw FormatError(
            text(name_, ": byte ", offset(), ": expected an intact JPEG image, found: ", found));
    }

    [[noreturn]] static void exit_with_error(j_common_ptr info) {
        auto& errors = *reinterpret_cast<Errors*>(info->err);
        errors.manager.format_message(info, errors.message);
        std::longjmp(errors.jump, 1);
    }

    static void exit_with_warning(j_common_ptr info, int level) {
        if (level < 0) exit_with_error(info);
    }

    /// A small progressive file may have so many scans that it takes hours.
    static void limit_scans(j_common_ptr info) {
        constexpr int most = 500;
        if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= most) return;
        auto& errors = *reinterpret_cast<Errors*>(info->err);
        std::snprintf(errors.message, sizeof errors.message, "more than %d scans", most);
        std::longjmp(errors.jump, 1);
    }

    std::span<const std::byte> bytes_;
    std::string_view name_;
    Errors errors_;
    jpeg_progress_mgr progress_{};
    jpeg_decompress_struct info_{};
};

DPTK_INLINE Image decode_jpeg(std::span<const std::byte> bytes, std::string_view name,
                              std::size_t max_pixels) {
    return JpegDecoder(bytes, name).decode(max_pixels);
}

}  // namespace DPTK_NAMESPACE::detail
