/// The version of dptk. The build system also reads it from this file.
#pragma once

/// Incremented, from 1.0.0 on, by changes that may break programs.
#define DPTK_VERSION_MAJOR 0
/// Incremented by new features, and before 1.0.0 also by changes that may break programs.
#define DPTK_VERSION_MINOR 1
/// Incremented by changes that break no program.
#define DPTK_VERSION_PATCH 0
/// All three numbers as text, major.minor.patch.
#define DPTK_VERSION "0.1.0"

/// The version as a number, for comparisons by the preprocessor: 102 is version 0.1.2, and 10203 is 1.2.3.
#define DPTK_VERSION_NUMBER (DPTK_VERSION_MAJOR * 10000 + DPTK_VERSION_MINOR * 100 + DPTK_VERSION_PATCH)

/// The inline namespace of all of dptk: dptk::Error is dptk::v0_1_0::Error.
#define DPTK_VERSION_NAMESPACE v0_1_0
