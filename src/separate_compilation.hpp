// The files of this folder have dptk's function bodies, for programs that define DPTK_SEPARATE_COMPILATION:
// docs/installing.md. Here it is defined whatever the command line says.
#ifndef DPTK_SEPARATE_COMPILATION
#define DPTK_SEPARATE_COMPILATION
#endif
