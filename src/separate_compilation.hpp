// For the files of this folder, whatever the command line says.
#ifndef DPTK_SEPARATE_COMPILATION
#define DPTK_SEPARATE_COMPILATION
#endif
