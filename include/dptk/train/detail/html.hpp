/// Parts of HTML files: texts from outside, numbers, images, and line charts as inline SVG. The tags are
/// those of XHTML too, so that XML parsers can read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/data/image.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns the text with its markup characters escaped, for elements and for attributes in quotes. Control
/// characters, which HTML and XML do not allow, and bytes that are not UTF-8 become question marks.
[[nodiscard]] std::string html_escaped(std::string_view text);

/// Returns the bytes in Base64 (RFC 4648).
[[nodiscard]] std::string base64(std::string_view bytes);

/// Returns a data URI with the image as PNG. See encode_png() for what the image must be.
[[nodiscard]] std::string png_data_uri(const Image& image);

/// Returns a number as fixed_text() does; "–" if it is not finite.
[[nodiscard]] std::string html_fixed(double value, int digits);

/// Returns a number as general_text() does; "–" if it is not finite.
[[nodiscard]] std::string html_general(double value, int digits);

/// Returns a number without fractions, with commas between thousands.
[[nodiscard]] std::string grouped(double value);

/// A line of a chart.
struct ChartLine {
    std::string name;            ///< For the legend.
    std::string css_class;       ///< Sets the color.
    std::vector<double> values;  ///< One for each epoch of the chart. Those that are not finite are left out.
};

/// A line chart over epochs.
struct LineChart {
    std::string title;
    std::string unit;  ///< The label of the y axis, with its unit.
    std::vector<double> epochs;
    std::vector<ChartLine> lines;
    bool begins_at_zero = true;  ///< Whether the y axis begins at 0.
};

/// Returns the positions of the ticks of an axis: multiples of 1, 2 or 5 times a power of 10 that cover the
/// range, about `count` of them. If `whole`, they are integers. The range must be finite, and longer than
/// rounding errors of its ends.
[[nodiscard]] std::vector<double> axis_ticks(double lowest, double highest, int count, bool whole);

/// Returns a `figure` element.
[[nodiscard]] std::string to_html(const LineChart& chart);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/train/detail/html.ipp"
#endif
