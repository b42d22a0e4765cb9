/// Writes files, valid and invalid.
#pragma once

#include <doctest/doctest.h>
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>

#include "dptk/core/error.hpp"
#include "support/temporary_folder.hpp"

inline std::filesystem::path write_gzip(const std::filesystem::path& path, const std::string& content) {
    const gzFile file = gzopen(path.c_str(), "wb");
    REQUIRE(gzwrite(file, content.data(), static_cast<unsigned>(content.size())) ==
            static_cast<int>(content.size()));
    REQUIRE(gzclose(file) == Z_OK);
    return path;
}

inline std::string file_content(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

/// Writes `00 00 type ndim`, and the dimensions.
inline std::string idx_header(int type, std::initializer_list<std::uint32_t> shape) {
    std::string header = {0, 0, static_cast<char>(type), static_cast<char>(shape.size())};
    for (const std::uint32_t dimension : shape) {
        for (const int shift : {24, 16, 8, 0}) header += static_cast<char>(dimension >> shift & 0xFF);
    }
    return header;
}

/// Returns the text of the FormatError that `function` throws, or "no error".
template <class Function>
std::string format_error_of(Function function) {
    try {
        function();
    } catch (const dptk::FormatError& error) {
        return error.what();
    }
    return "no error";
}
