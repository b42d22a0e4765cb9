/// The version of dptk. The build system reads it from here, so that it stands in one place.
#pragma once

#define DPTK_VERSION_MAJOR 0
#define DPTK_VERSION_MINOR 1
#define DPTK_VERSION_PATCH 0
#define DPTK_VERSION "0.1.0"

/// For comparisons by the preprocessor: 102 is version 0.1.2, and 10203 is 1.2.3.
#define DPTK_VERSION_NUMBER (DPTK_VERSION_MAJOR * 10000 + DPTK_VERSION_MINOR * 100 + DPTK_VERSION_PATCH)
