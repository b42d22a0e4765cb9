/// Failure reports: a failing rank writes a report, for its launcher (dptk-run or spawn), to the file that
/// DPTK_ERROR_FILE names. The report contains the error text, and says whether the rank is the cause of the
/// failure or failed as a consequence. The launcher uses the reports to find the rank that failed first. The
/// other ranks receive the error through control/health/control_plane.hpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Why a job has failed.
struct FailureCause {
    std::string text;
    /// The ranks that the text blames, if they are not the rank that it begins with: see blamed_ranks().
    std::vector<int> ranks = {};
    /// Whether all ranks throw the same error.
    bool is_agreed = false;
};

/// Serializes the text and the ranks.
[[nodiscard]] std::string to_text(const FailureCause& cause);

[[nodiscard]] FailureCause parse_cause(std::string_view serialized);

/// Returns the ranks that a cause blames: `cause.ranks`, or else the rank whose number the text begins with,
/// as in "rank 3 (host ...) is gone" or "rank 3: ...".
[[nodiscard]] std::vector<int> blamed_ranks(const FailureCause& cause);

/// Whether a rank has failed by itself, by an error that all ranks have thrown, or because of another rank.
enum class FailureKind { cause, agreed, consequence };

/// A failure report. The file contains the line `cause`, `agreed` or `consequence`, followed by the
/// serialized text and ranks.
struct FailureReport {
    FailureKind kind = FailureKind::cause;
    std::string text;
    /// Other ranks that the text blames. May be empty.
    std::vector<int> ranks = {};
};

/// Writes the report, replacing an older one. Ignores errors, which a failing rank could not report anyway.
void write_failure_report(const char* path, const FailureReport& report) noexcept;

/// Reads a report, but at most 64 KiB. Returns nullopt if the file does not exist or is not a report.
[[nodiscard]] std::optional<FailureReport> read_failure_report(const char* path);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/failure_report.ipp"
#endif
