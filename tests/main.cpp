// Runs the tests of one program.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#ifdef __SANITIZE_THREAD__
/// Some tests start threads in a child process.
extern "C" const char* __tsan_default_options();   // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __tsan_default_options() {  // NOLINT(bugprone-reserved-identifier)
    return "die_after_fork=0";
}
#endif
