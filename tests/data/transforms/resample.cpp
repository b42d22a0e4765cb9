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

TEST_CASE("a part of an image is resampled as if it had been cropped") {
    const dptk::Image image = test::picture(13, 9, 3, true);
    for (const dptk::CropWindow& window : {dptk::CropWindow{.left = 0, .top = 0, .width = 13, .height = 9},
                                           {.left = 2, .top = 3, .width = 7, .height = 5},
                                           {.left = 12, .top = 8, .width = 1, .height = 1}}) {
        for (const auto& [width, height] : {std::pair{4U, 3U}, {7U, 5U}, {7U, 2U}, {20U, 5U}})
            CHECK(dptk::resample(image, window, width, height) ==
                  dptk::resample(crop(image, window), width, height));
    }
    CHECK_THROWS_WITH_AS(static_cast<void>(dptk::resample(image, {.left = 7, .width = 7, .height = 1}, 2, 2)),
                         "resample: expected a window within 13 x 9 pixels, found 7 x 1 pixels at (7, 0)",
                         dptk::ArgumentError);
    CHECK_THROWS_WITH_AS(static_cast<void>(dptk::resample(image, {.left = 7, .width = 0, .height = 1}, 2, 2)),
                         "resample: expected an image with pixels, found none", dptk::ArgumentError);
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
