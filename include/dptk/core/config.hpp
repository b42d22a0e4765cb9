/// What all of dptk's headers are written with: the namespace, and how bodies are compiled.
///
/// Where DPTK_SEPARATE_COMPILATION is defined, bodies that are no templates are compiled once, by the files
/// of src/, and headers only declare them. Otherwise each header includes its bodies, from the .ipp file
/// beside it, as inline functions. Files of both kinds may be linked into one program.
#pragma once

#include "dptk/core/version.hpp"

/// An inline namespace with the version: two versions of dptk in one process share nothing.
#define DPTK_NAMESPACE dptk::inline DPTK_VERSION_NAMESPACE

/// Before each body in an .ipp file, and before the declaration of each virtual function that has its body
/// there: with the headers alone, a virtual function whose declaration is not inline makes GCC emit its class
/// in every file.
#ifdef DPTK_SEPARATE_COMPILATION
#define DPTK_INLINE
#else
#define DPTK_INLINE inline
#endif

/// Marks what must be one object in the whole process, even if libraries that are built with
/// -fvisibility=hidden include dptk: the exception types, the transport registry and the log sink.
#if defined(__GNUC__)
#define DPTK_EXPORT __attribute__((visibility("default")))
#else
#define DPTK_EXPORT
#endif
