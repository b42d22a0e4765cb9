#pragma once

#include "dptk/control/health/failure_report.hpp"

#include <cstddef>
#include <cstdio>
#include <string_view>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void write_failure_report(const char* path, const FailureReport& note) noexcept {
    std::FILE* const file = std::fopen(path, "we");
    if (file == nullptr) return;
    std::fputs(note.kind == FailureKind::cause ? "cause\n" : "consequence\n", file);
    std::fwrite(note.text.data(), 1, note.text.size(), file);
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
    FailureReport note{kind == "cause" ? FailureKind::cause : FailureKind::consequence, {}};
    if (line != std::string::npos) note.text = content.substr(line + 1);
    while (!note.text.empty() && note.text.back() == '\n') note.text.pop_back();
    return note;
}

}  // namespace DPTK_NAMESPACE::detail
