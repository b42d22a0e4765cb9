// Preloaded into a program, gives it the locale of its environment from the start, as a program with a user
// interface in the user's language has it.
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <locale>

namespace {

[[maybe_unused]] const bool is_set = [] {
    if (std::setlocale(LC_ALL, "") == nullptr) {
        std::fprintf(stderr, "environment_locale: the locale of the environment does not exist\n");
        std::exit(1);
    }
    std::locale::global(std::locale(""));
    return true;
}();

}  // namespace
