/// What each rank wants of the memory of its host, by options and by the environment: DPTK_SHM and
/// DPTK_PROCESSORS.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Trivially copyable. A word that makes no sense is told by check_settings(), to all ranks.
struct ShmSettings {
    enum class Sharing { no, yes, wrong } sharing = Sharing::yes;
    /// How many the ranks of a host have together; 0 where it is not said, and -1 where it is no number.
    int processors = 0;

    [[nodiscard]] static ShmSettings from_environment(std::optional<int> processors);

  private:
    [[nodiscard]] static std::string_view word(const char* variable);
};

/// Throws ArgumentError, the same on all ranks, where one of them wants what cannot be.
void check_settings(std::span<const ShmSettings> settings);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/shm/settings.ipp"
#include "dptk/core/error.hpp"
#endif
