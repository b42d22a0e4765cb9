/// Shared-memory settings of a rank, from options and from the environment variables DPTK_SHM and
/// DPTK_PROCESSORS.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// The settings of one rank. Trivially copyable. An invalid setting is recorded as `wrong` or -1, so that
/// check_settings() reports it on all ranks.
struct ShmSettings {
    enum class Sharing { no, yes, wrong } sharing = Sharing::yes;
    /// Processors that the ranks of a host have together; 0 if not set, and -1 if the value is invalid.
    int processors = 0;

    [[nodiscard]] static ShmSettings from_environment(std::optional<int> processors);

  private:
    [[nodiscard]] static std::string_view word(const char* variable);
};

/// Throws the same ArgumentError on all ranks if the settings of any rank are invalid.
void check_settings(std::span<const ShmSettings> settings);

/// Throws ArgumentError if a setting in this process's environment is invalid. For groups whose ranks are in
/// one process, which do not use these settings.
void check_own_settings();

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/shm/settings.ipp"
#endif
