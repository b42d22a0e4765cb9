#pragma once

#include "dptk/train/detail/html.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "dptk/core/detail/number_text.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/train/detail/png_encoder.hpp"
#include "dptk/train/tensorboard_file.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::string html_escaped(std::string_view text) {
    const bool is_valid = is_utf8(text);
    std::string out;
    for (const char character : text) {
        const auto byte = static_cast<unsigned char>(character);
        const bool is_allowed =
            (byte >= 0x20 || byte == '\t' || byte == '\n') && byte != 0x7f && (byte < 0x80 || is_valid);
        if (character == '&') {
            out += "&amp;";
        } else if (character == '<') {
            out += "&lt;";
        } else if (character == '>') {
            out += "&gt;";
        } else if (character == '"') {
            out += "&quot;";
        } else if (character == '\'') {
            out += "&#39;";
        } else {
            out += is_allowed ? character : '?';
        }
    }
    return out;
}

DPTK_INLINE std::string base64(std::string_view bytes) {
    constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out;
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        const auto byte = [&](std::size_t k) {
            return k < bytes.size() ? std::uint32_t{static_cast<unsigned char>(bytes[k])} : 0;
        };
        const std::uint32_t group = byte(i) << 16 | byte(i + 1) << 8 | byte(i + 2);
        for (std::size_t k = 0; k < 4; ++k)
            out += i + k > bytes.size() ? '=' : digits[group >> (18 - 6 * k) & 0x3f];
    }
    return out;
}

DPTK_INLINE std::string png_data_uri(const Image& image) {
    return "data:image/png;base64," + base64(encode_png(image));
}

DPTK_INLINE std::string html_fixed(double value, int digits) {
    return std::isfinite(value) ? fixed_text(value, digits) : "–";
}

DPTK_INLINE std::string html_general(double value, int digits) {
    return std::isfinite(value) ? general_text(value, digits) : "–";
}

DPTK_INLINE std::string grouped(double value) {
    std::string digits = html_fixed(value, 0);
    if (!std::isfinite(value)) return digits;
    const std::size_t first = digits.front() == '-' ? 1 : 0;
    for (std::size_t place = digits.size(); place > first + 3;) digits.insert(place -= 3, ",");
    return digits;
}

DPTK_INLINE std::vector<double> axis_ticks(double lowest, double highest, int count, bool whole) {
    const double rough = (highest - lowest) / count;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    double step = 10 * power;
    for (const double factor : {5, 2, 1})
        if (factor * power >= rough * 0.999) step = factor * power;
    if (whole) step = std::max(std::round(step), 1.0);
    std::vector<double> ticks;
    const double first = std::floor(lowest / step + 1e-9), last = std::ceil(highest / step - 1e-9);
    for (int i = 0; i <= static_cast<int>(last - first); ++i) ticks.push_back((first + i) * step);
    return ticks;
}

/// Whether a chart shows a value.
[[nodiscard]] DPTK_INLINE bool is_shown(double value) noexcept {
    return std::abs(value) < 1e300;
}

/// The part of a chart in which the lines are, in the units of its view box.
struct PlotArea {
    static constexpr double width = 400, height = 250;
    static constexpr double left = 66, right = width - 12, top = 12, bottom = height - 48;

    double x0, x1, y0, y1;  // the values at the ends of the axes

    [[nodiscard]] std::string x(double value) const {
        return html_fixed(left + (value - x0) / (x1 - x0) * (right - left), 1);
    }
    [[nodiscard]] std::string y(double value) const {
        return html_fixed(bottom - (value - y0) / (y1 - y0) * (bottom - top), 1);
    }
};

/// Appends an axis tick with its label, and for the y axis a line through the plot.
DPTK_INLINE void append_ticks(std::string& out, const PlotArea& area, const std::vector<double>& x_ticks,
                              const std::vector<double>& y_ticks) {
    const std::string left = html_fixed(area.left, 1), right = html_fixed(area.right, 1);
    for (const double tick : y_ticks) {
        const std::string y = area.y(tick);
        out += text("<line class=\"grid\" x1=\"", left, "\" x2=\"", right, "\" y1=\"", y, "\" y2=\"", y,
                    "\"/><text class=\"y\" x=\"", area.left - 6, "\" y=\"", y, "\">", html_general(tick, 6),
                    "</text>\n");
    }
    for (const double tick : x_ticks)
        if (tick >= area.x0 && tick <= area.x1)
            out += text("<text class=\"x\" x=\"", area.x(tick), "\" y=\"", area.bottom + 17, "\">",
                        html_general(tick, 6), "</text>\n");
}

/// Appends a line, which is interrupted where values are not finite, and points, if they are few.
DPTK_INLINE void append_line(std::string& out, const PlotArea& area, const std::vector<double>& epochs,
                             const ChartLine& line) {
    constexpr std::size_t most_points = 60;
    std::string path, points;
    bool is_drawing = false;
    for (std::size_t i = 0; i < epochs.size(); ++i) {
        const double value = line.values[i];
        if (is_shown(value)) {
            const std::string x = area.x(epochs[i]), y = area.y(value);
            path += text(is_drawing ? "L" : "M", x, " ", y);
            points += text("<circle cx=\"", x, "\" cy=\"", y, "\" r=\"2.5\"><title>epoch ", epochs[i], ", ",
                           html_escaped(line.name), ": ", html_general(value, 6), "</title></circle>\n");
        }
        is_drawing = is_shown(value);
    }
    out += text("<g class=\"line ", line.css_class, "\"><path d=\"", path, "\"/>\n",
                epochs.size() <= most_points ? points : "", "</g>\n");
}

[[nodiscard]] DPTK_INLINE PlotArea area_of(const LineChart& chart, std::vector<double>& y_ticks) {
    double lowest = std::numeric_limits<double>::infinity(), highest = -lowest;
    for (const ChartLine& line : chart.lines) {
        for (const double value : line.values) {
            if (!is_shown(value)) continue;
            lowest = std::min(lowest, value);
            highest = std::max(highest, value);
        }
    }
    if (!(lowest <= highest)) lowest = highest = 0;  // there are no values
    if (chart.begins_at_zero) lowest = std::min(lowest, 0.0);
    const double margin = std::max(std::abs(highest), std::abs(lowest)) / 10;
    if (highest - lowest < margin * 1e-6) lowest -= margin;
    if (highest == lowest) highest += 1;
    y_ticks = axis_ticks(lowest, highest, 5, false);
    const bool is_single = chart.epochs.front() == chart.epochs.back();
    return {chart.epochs.front() - (is_single ? 0.5 : 0), chart.epochs.back() + (is_single ? 0.5 : 0),
            y_ticks.front(), y_ticks.back()};
}

DPTK_INLINE std::string to_html(const LineChart& chart) {
    const std::string title = html_escaped(chart.title), unit = html_escaped(chart.unit);
    if (chart.epochs.empty()) return text("<figure><h3>", title, "</h3></figure>\n");
    std::vector<double> y_ticks;
    const PlotArea area = area_of(chart, y_ticks);
    const std::string middle = html_fixed((area.top + area.bottom) / 2, 1);
    std::string out = text("<figure><h3>", title, "</h3>\n<svg viewBox=\"0 0 ", area.width, " ", area.height,
                           "\" role=\"img\" aria-label=\"", title, " by epoch\">\n");
    append_ticks(out, area, axis_ticks(area.x0, area.x1, 8, true), y_ticks);
    out += text("<text class=\"x\" x=\"", (area.left + area.right) / 2, "\" y=\"", area.height - 10,
                "\">epoch</text>\n<text class=\"x\" transform=\"translate(13 ", middle, ") rotate(-90)\">",
                unit, "</text>\n");
    for (const ChartLine& line : chart.lines) append_line(out, area, chart.epochs, line);
    out += "</svg>\n<figcaption>";
    for (const ChartLine& line : chart.lines)
        out += text("<span class=\"key ", line.css_class, "\"></span>", html_escaped(line.name), " ");
    return out + "</figcaption></figure>\n";
}

}  // namespace DPTK_NAMESPACE::detail
