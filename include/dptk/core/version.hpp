/// The version of dptk. The build system reads it from here, so that it stands in one place.
#pragma once

#define DPTK_VERSION_MAJOR 0
#define DPTK_VERSION_MINOR 1
#define DPTK_VERSION_PATCH 0
#define DPTK_VERSION "0.1.0"
