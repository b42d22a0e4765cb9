// Formatted texts of the training example.
#pragma once

#include <cstdio>
#include <string>

template <class... Arguments>
[[nodiscard]] std::string format(const char* pattern, Arguments... arguments) {
    char text[256];
    std::snprintf(text, sizeof text, pattern, arguments...);
    return text;
}
