/// Checks that Gloo's headers are available. Included before them, so that the error says what to do.
#pragma once

#if !__has_include(<gloo/config.h>)
#error "dptk/comm/gloo.hpp needs Gloo: link `gloo` (Debian: libgloo-dev)"
#endif
