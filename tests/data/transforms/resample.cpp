#include "dptk/data/transforms/resample.hpp"

#include <doctest/doctest.h>
#include <dptk/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <fstream>

#include "data/transforms/pictures.hpp"

TEST_CASE("resampled images are Pillow's, bit for bit") {
    std::ifstream recorded(DPTK_TEST_SOURCE_DIR "/data/transforms/resample_pillow.txt");
    std::size_t width = 0, height = 0, channels = 0, sharp = 0, to_width = 0, to_height = 0, lines = 0;
    std::uint64_t hash = 0;
    while (recorded >> width >> height >> channels >> sharp >> to_width >> to_height >> hash) {
        CAPTURE(width);
        CAPTURE(height);
        CAPTURE(to_width);
        CAPTURE(to_height);
        const dptk::Image out =
            dptk::resample(test::picture(width, height, channels, sharp != 0), to_width, to_height);
        CHECK(out.width == to_width);
        CHECK(out.height == to_height);
        CHECK(out.channels == channels);
        CHECK(test::hash_of_elements<std::uint8_t>(out.pixels) == hash);
        ++lines;
    }
    CHECK(lines == 45);
}

TEST_CASE("a size of 0, or an image without pixels, cannot be resampled") {
    CHECK_THROWS_WITH_AS(static_cast<void>(dptk::resample({}, 2, 2)),
                         "resample: expected an image with pixels, found none", dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(static_cast<void>(dptk::resample(test::picture(2, 2, 1, false), 0, 2)),
                         "resample: expected a size of 1 to 65536 pixels, found 0 x 2", dptk::ArgumentError);
    CHECK_THROWS_AS(static_cast<void>(dptk::resample(test::picture(2, 2, 1, false), 2, 65537)),
                    dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(static_cast<void>(dptk::resample(test::picture(2, 2, 5), 3, 3)),
                         "resample: expected at most 4 channels, found 5", dptk::ArgumentError);
}
