/// The note that a rank leaves behind when it fails, in the file that DPTK_ERROR_FILE names: whether it is
/// the cause, or ends only because another rank was lost, and what it has to say. From these notes dptk-run
/// and spawn know which rank failed first.
#pragma once

#include <optional>
#include <string>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

enum class FailureKind { cause, consequence };

/// In the file: a first line `cause` or `consequence`, then the text.
struct FailureReport {
    FailureKind kind = FailureKind::cause;
    std::string text;
};

/// Writes the note over an older one. Best effort: a rank that fails has nobody to tell that this failed,
/// too.
void write_failure_report(const char* path, const FailureReport& note) noexcept;

/// The note in that file; nothing where there is none, or what is there is no note. Texts are cut at 64 KiB.
[[nodiscard]] std::optional<FailureReport> read_failure_report(const char* path);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/failure_report.ipp"
#endif
