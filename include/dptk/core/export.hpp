/// DPTK_EXPORT marks what must be one object in the whole process, even when libraries that are built with
/// -fvisibility=hidden include dptk: the exception types, the transport registry and the log sink.
#pragma once

#if defined(__GNUC__)
#define DPTK_EXPORT __attribute__((visibility("default")))
#else
#define DPTK_EXPORT
#endif
