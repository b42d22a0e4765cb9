#pragma once

#include "dptk/data/images/detail/jpeg_decoder.hpp"

#if !__has_include(<jpeglib.h>)
#error \
    "dptk's image decoders need libjpeg-turbo: install libjpeg-dev (Debian, Ubuntu) or libjpeg-turbo-devel (Fedora)."
#endif

#include <algorithm>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <jpeglib.h>

#include <jerror.h>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// A decompressor of libjpeg. libjpeg reports errors through C code, which exceptions must not pass: its
/// handlers jump back to guarded(), which throws. As in Pillow, the source has no bytes after the file's:
/// libjpeg's own sources continue with an end marker, and fill up what is missing.
class JpegDecoder {
  public:
    JpegDecoder(std::span<const std::byte> bytes, std::string_view name) : bytes_(bytes), name_(name) {
        info_.err = jpeg_std_error(&errors_.manager);
        errors_.manager.error_exit = &exit_with_error;
        errors_.manager.emit_message = &take_message;
        progress_.progress_monitor = &limit_scans;
        source_.next_input_byte = reinterpret_cast<const unsigned char*>(bytes.data());
        source_.bytes_in_buffer = bytes.size();
        source_.init_source = source_.term_source = [](j_decompress_ptr) {};
        source_.fill_input_buffer = [](j_decompress_ptr) -> boolean { return FALSE; };
        source_.skip_input_data = &skip;
        source_.resync_to_restart = &jpeg_resync_to_restart;
        guarded([this] {
            jpeg_create_decompress(&info_);
            info_.progress = &progress_;
            info_.src = &source_;
        });
    }
    ~JpegDecoder() { jpeg_destroy_decompress(&info_); }
    JpegDecoder(const JpegDecoder&) = delete;
    JpegDecoder& operator=(const JpegDecoder&) = delete;

    [[nodiscard]] DecodedImage decode(std::size_t max_pixels) {
        int header = JPEG_HEADER_TABLES_ONLY;
        while (header == JPEG_HEADER_TABLES_ONLY)
            guarded([this, &header] { header = jpeg_read_header(&info_, FALSE); });
        require(header == JPEG_HEADER_OK);
        check_pixels(info_.image_width, info_.image_height, max_pixels, name_, offset());
        switch (info_.num_components) {
            case 1: info_.out_color_space = JCS_GRAYSCALE; break;
            case 3: info_.out_color_space = JCS_RGB; break;
            case 4: info_.out_color_space = JCS_CMYK; break;
            default: fail(text("an image with ", info_.num_components, " components"));
        }
        bool has_started = false;
        guarded([this, &has_started] { has_started = jpeg_start_decompress(&info_) != FALSE; });
        require(has_started);
        Image image{info_.output_width, info_.output_height, 3, {}};
        image.pixels.resize(image.width * image.height * 3);
        read_rows(image);
        guarded([this] { jpeg_finish_decompress(&info_); });  // false: all pixels, but no end marker
        return {std::move(image), errors_.warning};
    }

  private:
    struct Errors {
        jpeg_error_mgr manager{};  // the first member: libjpeg passes its address
        std::jmp_buf jump{};
        char message[JMSG_LENGTH_MAX] = "";
        char warning[JMSG_LENGTH_MAX] = "";
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
            JDIMENSION rows = 0;
            guarded([this, &into, &rows] { rows = jpeg_read_scanlines(&info_, &into, 1); });
            require(rows == 1);
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

    /// Throws if libjpeg needs more bytes than the file has.
    void require(bool has_bytes) const {
        if (!has_bytes) fail("the end of the file");
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

    /// Whether libjpeg fills up the pixels after this warning.
    [[nodiscard]] static bool lacks_pixels(int code) {
        constexpr int codes[] = {JWRN_ARITH_BAD_CODE, JWRN_HIT_MARKER, JWRN_HUFF_BAD_CODE, JWRN_JPEG_EOF,
                                 JWRN_MUST_RESYNC};
        return std::find(std::begin(codes), std::end(codes), code) != std::end(codes);
    }

    static void take_message(j_common_ptr info, int level) {
        if (level >= 0) return;  // no warning
        auto& errors = *reinterpret_cast<Errors*>(info->err);
        if (lacks_pixels(errors.manager.msg_code)) exit_with_error(info);
        if (errors.manager.num_warnings++ == 0) errors.manager.format_message(info, errors.warning);
    }

    static void skip(j_decompress_ptr info, long count) {
        const std::size_t skipped = std::min(static_cast<std::size_t>(count), info->src->bytes_in_buffer);
        info->src->next_input_byte += skipped;
        info->src->bytes_in_buffer -= skipped;
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
    jpeg_source_mgr source_{};
    jpeg_decompress_struct info_{};
};

DPTK_INLINE DecodedImage decode_jpeg(std::span<const std::byte> bytes, std::string_view name,
                                     std::size_t max_pixels) {
    return JpegDecoder(bytes, name).decode(max_pixels);
}

}  // namespace DPTK_NAMESPACE::detail
