#include "format.hpp"

#include <dptk/core/detail/number_text.hpp>
#include <dptk/core/detail/text.hpp>

#include <array>

namespace info {

namespace {

using dptk::detail::fixed_text;
using dptk::detail::text;

/// Three significant digits, or more if the integer part has more.
[[nodiscard]] std::string three_digits(double number) {
    return fixed_text(number, number < 9.995 ? 2 : number < 99.95 ? 1 : 0);
}

}  // namespace

std::string bytes_text(std::uint64_t bytes) {
    constexpr std::array<const char*, 6> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    std::size_t unit = 0;
    double number = static_cast<double>(bytes);
    for (; number >= 1024 && unit + 1 < units.size(); ++unit) number /= 1024;
    const bool whole = bytes % (std::uint64_t{1} << (10 * unit)) == 0;
    return text(fixed_text(number, whole ? 0 : 1), " ", units[unit]);
}

std::string seconds_text(double seconds) {
    if (seconds < 1e-3) return three_digits(seconds * 1e6) + " us";
    if (seconds < 1) return three_digits(seconds * 1e3) + " ms";
    return three_digits(seconds) + " s";
}

std::string rate_text(double bytes_per_second) {
    if (bytes_per_second < 1e6) return three_digits(bytes_per_second / 1e3) + " kB/s";
    if (bytes_per_second < 1e9) return three_digits(bytes_per_second / 1e6) + " MB/s";
    return three_digits(bytes_per_second / 1e9) + " GB/s";
}

std::string number_text(double number) {
    std::string out = fixed_text(number, 2);
    while (out.back() == '0') out.pop_back();
    if (out.back() == '.') out.pop_back();
    return out;
}

std::string ratio_text(double ratio) {
    return fixed_text(ratio, 2);
}

std::string list_text(const std::vector<int>& numbers) {
    std::string out;
    for (std::size_t first = 0; first < numbers.size();) {
        std::size_t last = first;
        while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
        out += text(out.empty() ? "" : ",", numbers[first]);
        if (last > first) out += text("-", numbers[last]);
        first = last + 1;
    }
    return out.empty() ? "none" : out;
}

}  // namespace info
