/// The note that a rank leaves behind when it fails, in the file that DPTK_ERROR_FILE names: whether it is
/// the cause, or ends only because another rank was lost, and what it has to say. From these notes dptk-run
/// and spawn know which rank failed first.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

namespace dptk {

enum class FailureKind { cause, consequence };

/// In the file: a first line `cause` or `consequence`, then the text.
struct FailureNote {
    FailureKind kind = FailureKind::cause;
    std::string text;
};

/// Writes the note over an older one. Best effort: a rank that fails has nobody to tell that this failed,
/// too.
inline void write_failure_note(const char* path, const FailureNote& note) noexcept {
    std::FILE* const file = std::fopen(path, "we");
    if (file == nullptr) return;
    std::fputs(note.kind == FailureKind::cause ? "cause\n" : "consequence\n", file);
    std::fwrite(note.text.data(), 1, note.text.size(), file);
    std::fclose(file);
}

/// The note in that file; nothing where there is none, or what is there is no note. Texts are cut at 64 KiB.
[[nodiscard]] inline std::optional<FailureNote> read_failure_note(const char* path) {
    std::FILE* const file = std::fopen(path, "re");
    if (file == nullptr) return std::nullopt;
    std::string content(std::size_t{1} << 16, '\0');
    content.resize(std::fread(content.data(), 1, content.size(), file));
    std::fclose(file);

    const std::size_t line = content.find('\n');
    const std::string_view kind = std::string_view(content).substr(0, line);
    if (kind != "cause" && kind != "consequence") return std::nullopt;
    FailureNote note{kind == "cause" ? FailureKind::cause : FailureKind::consequence, {}};
    if (line != std::string::npos) note.text = content.substr(line + 1);
    while (!note.text.empty() && note.text.back() == '\n') note.text.pop_back();
    return note;
}

}  // namespace dptk
