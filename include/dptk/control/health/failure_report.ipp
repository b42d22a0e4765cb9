#pragma once

#include "dptk/control/health/failure_report.hpp"

#include <cstddef>
#include <cstdio>
#include <string_view>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void write_failure_report(const char* path, const FailureReport& report) noexcept {
    std::FILE* const file = std::fopen(path, "we");
    if (file == nullptr) return;
    std::fputs(report.kind == FailureKind::cause ? "cause\n" : "consequence\n", file);
    std::fwrite(report.text.data(), 1, report.text.size(), file);
    std::fclose(file);
}

DPTK_INLINE std::optional<FailureReport> read_failure_report(const char* path) {
    std::FILE* const file = std::fopen(path, "re");
    if (file == nullptr) return std::nullopt;
    std::string content(std::size_t{1} << 16, '\0');
    content.resize(std::fread(content.data(), 1, content.size(), file));
    std::fclose(file);

    const std::size_t line = content.find('\n');
    const std::string_view kind = std::string_view(content).substr(0, line);
    if (kind != "cause" && kind != "consequence") return std::nullopt;
    FailureReport report{kind == "cause" ? FailureKind::cause : FailureKind::consequence, {}};
    if (line != std::string::npos) report.text = content.substr(line + 1);
    while (!report.text.empty() && report.text.back() == '\n') report.text.pop_back();
    return report;
}

}  // namespace DPTK_NAMESPACE::detail
