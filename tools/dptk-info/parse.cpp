#include "parse.hpp"

#include <dptk/core/detail/text.hpp>

#include <charconv>

namespace info {

namespace {

using dptk::detail::text;

[[nodiscard]] std::string_view trim(std::string_view piece) {
    const std::size_t first = piece.find_first_not_of(" \t\r\n");
    if (first == std::string_view::npos) return {};
    return piece.substr(first, piece.find_last_not_of(" \t\r\n") - first + 1);
}

/// Removes the text before `separator` and the separator itself from `rest`. Returns the text before it.
[[nodiscard]] std::string_view take_until(std::string_view& rest, char separator) {
    const std::size_t end = rest.find(separator);
    const std::string_view piece = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    return piece;
}

/// The value of the first line `name SEPARATOR value`.
[[nodiscard]] std::optional<std::string_view> value_of(std::string_view lines, std::string_view name,
                                                       char separator) {
    while (!lines.empty()) {
        std::string_view value = take_until(lines, '\n');
        if (value.find(separator) == std::string_view::npos) continue;
        if (trim(take_until(value, separator)) == name) return trim(value);
    }
    return std::nullopt;
}

template <class Number>
[[nodiscard]] std::optional<Number> number_of(std::string_view digits) {
    Number number = 0;
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (status != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
    return number;
}

/// Removes the quotes and the backslashes of a shell assignment.
[[nodiscard]] std::string unquote(std::string_view value) {
    const bool quoted =
        value.size() >= 2 && (value[0] == '"' || value[0] == '\'') && value.back() == value[0];
    if (!quoted) return std::string(value);
    const bool escapes = value[0] == '"';
    std::string out;
    for (std::size_t i = 1; i + 1 < value.size(); ++i) {
        if (escapes && value[i] == '\\' && i + 2 < value.size()) ++i;
        out += value[i];
    }
    return out;
}

}  // namespace

std::string parse_os_release(std::string_view lines) {
    const std::optional<std::string_view> name = value_of(lines, "PRETTY_NAME", '=');
    return name && !name->empty() ? unquote(*name) : "Linux";
}

std::optional<std::uint64_t> parse_meminfo(std::string_view lines, std::string_view entry) {
    std::string_view value = value_of(lines, entry, ':').value_or("");
    const std::optional<std::uint64_t> number = number_of<std::uint64_t>(take_until(value, ' '));
    if (!number || trim(value) != "kB") return std::nullopt;
    return *number * 1024;
}

std::string parse_cpu_model(std::string_view lines) {
    for (const std::string_view name : {"model name", "cpu model", "cpu"}) {
        if (const auto value = value_of(lines, name, ':')) return std::string(*value);
    }
    return "";
}

std::vector<std::pair<std::string, std::string>> parse_cgroup_paths(std::string_view lines) {
    std::vector<std::pair<std::string, std::string>> paths;
    while (!lines.empty()) {
        std::string_view path = take_until(lines, '\n');
        static_cast<void>(take_until(path, ':'));
        std::string_view controllers = take_until(path, ':');
        if (!path.starts_with('/')) continue;
        do {
            paths.emplace_back(take_until(controllers, ','), path);
        } while (!controllers.empty());
    }
    return paths;
}

std::optional<double> parse_cpu_max(std::string_view value) {
    value = trim(value);
    const std::optional<long> quota = number_of<long>(take_until(value, ' '));
    const std::optional<long> period = number_of<long>(trim(value));
    if (!quota || *quota <= 0 || !period || *period <= 0) return std::nullopt;
    return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<std::uint64_t> parse_memory_max(std::string_view value) {
    return number_of<std::uint64_t>(trim(value));
}

std::optional<int> parse_omp_num_threads(std::string_view value) {
    const std::optional<int> number = number_of<int>(trim(take_until(value, ',')));
    return number && *number > 0 ? number : std::nullopt;
}

std::string cuda_version_text(int version) {
    return text(version / 1000, ".", version % 1000 / 10);
}

std::string cudnn_version_text(std::size_t version) {
    const std::size_t major = version >= 90000 ? 10000 : 1000;
    return text(version / major, ".", version % major / 100, ".", version % 100);
}

std::string nccl_version_text(int version) {
    const int major = version >= 20000 ? 10000 : 1000;
    return text(version / major, ".", version % major / 100, ".", version % 100);
}

}  // namespace info
