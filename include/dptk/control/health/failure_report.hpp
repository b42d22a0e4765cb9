/// Failure reports: a failing rank writes a report, for its launcher (dptk-run or spawn), to the file that
/// DPTK_ERROR_FILE names. The report contains the error text, and says whether the rank is the cause of the
/// failure or failed as a consequence. The launcher uses the reports to find the rank that failed first. The
/// other ranks receive the error through control/health/control_plane.hpp.
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

/// Reads a report, but at most 64 KiB. Returns nullopt if the file does not exist or is not a report.
[[nodiscard]] std::optional<FailureReport> read_failure_report(const char* path);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/failure_report.ipp"
#endif
