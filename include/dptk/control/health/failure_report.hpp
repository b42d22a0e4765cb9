/// Failure reports: the file, named by DPTK_ERROR_FILE, that a failing rank writes for its launcher (dptk-run
/// or spawn), not for other ranks; control/health/control_plane.hpp sends the error to these. The report says
/// whether the rank is the cause of the failure or ends because another rank was lost, and contains the error
/// text. dptk-run and spawn use the reports to find the rank that failed first.
#pragma once

#include <optional>
#include <string>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

enum class FailureKind { cause, consequence };

/// A failure report. The file contains the line `cause` or `consequence`, followed by the text.
struct FailureReport {
    FailureKind kind = FailureKind::cause;
    std::string text;
};

/// Writes the report, replacing an older one. Ignores errors, which a failing rank could not report anyway.
void write_failure_report(const char* path, const FailureReport& report) noexcept;

/// Reads a report. Returns nullopt if the file does not exist or is not a report. Truncates at 64 KiB.
[[nodiscard]] std::optional<FailureReport> read_failure_report(const char* path);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/failure_report.ipp"
#endif
