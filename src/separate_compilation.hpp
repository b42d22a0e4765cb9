// Compiled mode: the files of this folder contain dptk's function bodies, for programs that define the macro
// DPTK_SEPARATE_COMPILATION (see docs/installing.md). This header defines it if the command line does not.
#ifndef DPTK_SEPARATE_COMPILATION
#define DPTK_SEPARATE_COMPILATION
#endif
