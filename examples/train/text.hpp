// Formatted texts of the training example.
#pragma once

#include <locale.h>

#include <cstdio>
#include <string>

/// As printf, with a decimal point, whatever the program's locale is.
template <class... Arguments>
[[nodiscard]] std::string format(const char* pattern, Arguments... arguments) {
    static const locale_t plain = ::newlocale(LC_ALL_MASK, "C", nullptr);
    const locale_t program = ::uselocale(plain);  // of this thread
    char text[256];
    std::snprintf(text, sizeof text, pattern, arguments...);
    ::uselocale(program);
    return text;
}
