/// Macros that all headers of dptk use: the namespace, header-only or separate compilation, and symbol
/// visibility.
///
/// If DPTK_SEPARATE_COMPILATION is defined, function bodies that are not templates are compiled once, by the
/// files of src/, and headers only declare the functions. Otherwise each header includes its bodies from the
/// .ipp file beside it, as inline functions. Files that were compiled in either way may be linked into one
/// program.
#pragma once

#include "dptk/core/version.hpp"

/// An inline namespace that contains the version: two versions of dptk in one process share no symbols.
#define DPTK_NAMESPACE dptk::inline DPTK_VERSION_NAMESPACE

/// Stands before each function body in an .ipp file, and before the declaration of each virtual function
/// whose body is in an .ipp file. The declarations need the macro in header-only mode: unless a class's first
/// virtual function is declared inline, GCC emits the class's vtable in every file that includes its header.
#ifdef DPTK_SEPARATE_COMPILATION
#define DPTK_INLINE
#else
#define DPTK_INLINE inline
#endif

/// An inline namespace for arithmetic. In header-only mode it is named after the instruction set for which
/// the file is compiled, so that files of one program that are compiled for different CPUs do not share its
/// functions.
#if defined(DPTK_SEPARATE_COMPILATION)
#define DPTK_ARITHMETIC compiled
#elif defined(__AVX512F__)
#define DPTK_ARITHMETIC for_avx512
#elif defined(__AVX2__)
#define DPTK_ARITHMETIC for_avx2
#elif defined(__AVX__)
#define DPTK_ARITHMETIC for_avx
#else
#define DPTK_ARITHMETIC for_any_cpu
#endif

/// Marks symbols that must exist only once in a process, even if libraries that are built with
/// -fvisibility=hidden include dptk: the exception types, the transport registry and the log sink.
#if defined(__GNUC__)
#define DPTK_EXPORT __attribute__((visibility("default")))
#else
#define DPTK_EXPORT
#endif

/// Marks functions that also compile for GPUs.
#ifdef __CUDACC__
#define DPTK_HOST_DEVICE __host__ __device__
#else
#define DPTK_HOST_DEVICE
#endif
