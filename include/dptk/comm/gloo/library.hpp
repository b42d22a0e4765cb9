/// Included before Gloo's own headers: says what to do where they are missing.
#pragma once

#if !__has_include(<gloo/config.h>)
#error "dptk/comm/gloo.hpp needs Gloo: link `gloo` (Debian: libgloo-dev)"
#endif
