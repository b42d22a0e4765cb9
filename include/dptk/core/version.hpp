/// The version of dptk. The build system reads it from here, so that it stands in one place.
#pragma once

/// Raised for what may break programs, from 1.0.0 on.
#define DPTK_VERSION_MAJOR 0
/// Raised for what is new, and before 1.0.0 for what may break programs.
#define DPTK_VERSION_MINOR 1
/// Raised for what breaks no program.
#define DPTK_VERSION_PATCH 0
/// All three as text, major.minor.patch.
#define DPTK_VERSION "0.1.0"

/// For comparisons by the preprocessor: 102 is version 0.1.2, and 10203 is 1.2.3.
#define DPTK_VERSION_NUMBER (DPTK_VERSION_MAJOR * 10000 + DPTK_VERSION_MINOR * 100 + DPTK_VERSION_PATCH)

/// The inline namespace of everything in dptk: dptk::Error is dptk::v0_1_0::Error.
#define DPTK_VERSION_NAMESPACE v0_1_0
