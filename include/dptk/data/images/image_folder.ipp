#pragma once

#include "dptk/data/images/image_folder.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <string_view>
#include <system_error>

#include "dptk/core/detail/fnv1a.hpp"
#include "dptk/core/detail/parse.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns the paths in a folder, sorted. Throws ArgumentError if the folder cannot be read.
[[nodiscard]] DPTK_INLINE std::vector<std::string> entries_of(const std::string& folder) {
    std::error_code error;
    std::vector<std::string> entries;
    std::filesystem::directory_iterator entry(folder, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
        entries.push_back(entry->path().string());
    if (error)
        throw ArgumentError(text("ImageFolder: cannot read the folder ", folder, ": ", error.message()));
    std::sort(entries.begin(), entries.end());
    return entries;
}

[[nodiscard]] DPTK_INLINE bool is_folder(const std::string& path) {
    std::error_code error;
    return std::filesystem::is_directory(path, error);
}

/// Appends a folder and all folders within it.
DPTK_INLINE void append_folders(const std::string& folder, std::vector<std::string>& folders, int depth) {
    constexpr int most = 32;  // fewer than the links that the system follows
    if (depth > most)
        throw ArgumentError(text("ImageFolder: expected at most ", most,
                                 " folders within each other, found more in ", folder,
                                 "; does a link lead back to it?"));
    folders.push_back(folder);
    for (const std::string& entry : entries_of(folder))
        if (is_folder(entry)) append_folders(entry, folders, depth + 1);
}

/// Returns whether this is an image file that dptk decodes. Throws ArgumentError for an image file that
/// torchvision decodes and dptk does not, since a dataset without it would be another one.
[[nodiscard]] DPTK_INLINE bool is_image_file(std::string_view path) {
    const auto has = [&](std::string_view ending) {
        return path.size() >= ending.size() &&
               std::equal(ending.begin(), ending.end(),
                          path.end() - static_cast<std::ptrdiff_t>(ending.size()),
                          [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); });
    };
    for (const std::string_view other : {".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"}) {
        if (has(other))
            throw ArgumentError(text("ImageFolder: ", path,
                                     ": expected JPEG and PNG images, found a file \"*", other,
                                     "\": convert it, or move it out of the folder"));
    }
    return has(".jpg") || has(".jpeg") || has(".png");
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE ImageFolder::ImageFolder(const ImageFolderOptions& options,
                                     const std::vector<std::string>& sources)
    : options_(options), fingerprint_(detail::fnv1a("")) {
    if (sources.empty()) throw ArgumentError("ImageFolder: expected a folder or a list file, found none");
    for (const std::string& source : sources) {
        std::error_code error;
        if (detail::is_folder(source)) {
            add_folder(source);
        } else if (std::filesystem::is_regular_file(source, error)) {
            add_list(source);
        } else {
            throw ArgumentError(
                detail::text("ImageFolder: ", source,
                             ": expected a folder that has a folder of images for each class, or a "
                             "list file, found ",
                             std::filesystem::exists(source, error) ? "neither" : "nothing"));
        }
    }
    const std::size_t labels = std::max(class_names_.size(), static_cast<std::size_t>(largest_label_ + 1));
    if (!first_folder_.empty() && labels > class_names_.size())
        throw ArgumentError(detail::text("ImageFolder: ", first_folder_, " has ", class_names_.size(),
                                         " classes, but a list has the label ", largest_label_));
    for (std::size_t label = class_names_.size(); label < labels; ++label)
        class_names_.push_back(std::to_string(label));
    if (!options.class_names.empty()) read_class_names(options.class_names);
}

DPTK_INLINE void ImageFolder::add_folder(std::string folder) {
    while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
    std::vector<std::string> names, empty;
    for (const std::string& entry : detail::entries_of(folder)) {
        if (!detail::is_folder(entry)) continue;
        const auto label = static_cast<int>(names.size());
        names.push_back(std::filesystem::path(entry).filename().string());
        std::vector<std::string> folders;
        detail::append_folders(entry, folders, 0);
        std::sort(folders.begin(), folders.end());
        const std::size_t before = files_.size();
        for (const std::string& one : folders) {
            for (const std::string& file : detail::entries_of(one)) {
                if (!detail::is_folder(file) && detail::is_image_file(file))
                    add_file(file, label, std::string_view(file).substr(folder.size()));
            }
        }
        if (files_.size() == before) empty.push_back(names.back());
    }
    if (names.empty())
        throw ArgumentError(detail::text("ImageFolder: ", folder,
                                         ": expected a folder of images for each class, found no folder"));
    if (!empty.empty())
        throw ArgumentError(detail::text("ImageFolder: ", folder,
                                         ": expected images of each class, found no .jpg, "
                                         ".jpeg or .png file for ",
                                         empty.front(), " (", empty.size(), " of ", names.size(),
                                         " classes have none)"));
    if (!first_folder_.empty() && names != class_names_)
        throw ArgumentError(detail::text("ImageFolder: ", folder, ": expected the same classes as in ",
                                         first_folder_, ", found ", names.size(), " classes instead of ",
                                         class_names_.size(), ", or other names"));
    first_folder_ = folder;
    class_names_ = std::move(names);
}

DPTK_INLINE void ImageFolder::add_list(const std::string& list) {
    std::ifstream in(list);
    const std::filesystem::path folder = std::filesystem::path(list).parent_path();
    std::string line;
    for (std::size_t number = 1; std::getline(in, line); ++number) {
        while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0) line.pop_back();
        if (line.empty()) continue;
        const std::size_t last = line.find_last_of(" \t");
        int label = -1;
        if (last == std::string::npos ||
            !detail::parse_number(std::string_view(line).substr(last + 1), label) || label < 0)
            throw FormatError(
                detail::text(list, ": line ", number,
                             ": expected a path and a label, an integer of at least 0, found \"", line, '"'));
        const std::string path = line.substr(0, line.find_last_not_of(" \t", last) + 1);
        add_file((folder / path).string(), label, path);
        largest_label_ = std::max(largest_label_, label);
    }
    if (in.bad() || !in.eof()) throw FormatError(detail::text(list, ": cannot read the list file"));
}

DPTK_INLINE void ImageFolder::add_file(std::string path, int label, std::string_view name) {
    fingerprint_ = detail::fnv1a(detail::text(name, ' ', label, '\n'), fingerprint_);
    files_.push_back({std::move(path), label});
}

DPTK_INLINE void ImageFolder::read_class_names(const std::filesystem::path& file) {
    std::ifstream in(file);
    std::vector<std::string> names;
    for (std::string line; std::getline(in, line);) {
        if (!line.empty() && line.back() == '\r') line.pop_back();
        if (!line.empty()) names.push_back(line);
    }
    if (!in.eof())
        throw ArgumentError(detail::text("ImageFolder: cannot read the class names in ", file.string()));
    if (first_folder_.empty() ? names.size() < classes() : names.size() != classes())
        throw ArgumentError(detail::text("ImageFolder: ", file.string(), ": expected ", classes(),
                                         " class names, as the images have, found ", names.size()));
    class_names_ = std::move(names);
}

DPTK_INLINE std::pair<Image, int> ImageFolder::operator[](std::size_t index) const {
    for (std::size_t tried = 0; tried < size(); ++tried) {
        const std::size_t at = (index + tried) % size();
        try {
            return {read_image(files_[at].path, options_.decode), files_[at].label};
        } catch (const FormatError& error) {
            if (!options_.skip_damaged) throw;
            skip(at, error.what());
        }
    }
    throw FormatError(detail::text("ImageFolder: all ", size(), " files are damaged"));
}

DPTK_INLINE void ImageFolder::skip(std::size_t index, const char* problem) const {
    const std::lock_guard lock(damaged_->mutex);
    if (!damaged_->indices.insert(index).second) return;
    log(LogLevel::warning, -1,
        detail::text("ImageFolder skips a damaged file, and uses the next one instead (",
                     damaged_->indices.size(), " until now): ", problem));
}

DPTK_INLINE std::size_t ImageFolder::skipped() const {
    const std::lock_guard lock(damaged_->mutex);
    return damaged_->indices.size();
}

}  // namespace DPTK_NAMESPACE
