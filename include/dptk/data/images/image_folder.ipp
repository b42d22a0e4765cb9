#pragma once

#include "dptk/data/images/image_folder.hpp"

#include <algorithm>
#include <initializer_list>
#include <sstream>
#include <string_view>
#include <system_error>

#include "dptk/core/detail/errno_text.hpp"
#include "dptk/core/detail/fnv1a.hpp"
#include "dptk/core/detail/parse.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/log.hpp"
#include "dptk/data/detail/input_file.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns the paths in a folder, sorted. Throws BackendError if the folder cannot be read.
[[nodiscard]] DPTK_INLINE std::vector<std::string> entries_of(const std::string& folder) {
    std::error_code error;
    std::vector<std::string> entries;
    std::filesystem::directory_iterator entry(folder, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
        entries.push_back(entry->path().string());
    if (error)
        throw BackendError(
            text("ImageFolder: cannot read the folder ", folder, ": ", errno_text(error.value())));
    std::sort(entries.begin(), entries.end());
    return entries;
}

/// Throws BackendError if the system does not say whether the path is a folder.
[[nodiscard]] DPTK_INLINE bool is_folder(const std::string& path) {
    std::error_code error;
    const std::filesystem::file_type type = std::filesystem::status(path, error).type();
    if (type == std::filesystem::file_type::none)
        throw BackendError(text("ImageFolder: ", path, ": ", errno_text(error.value())));
    return type == std::filesystem::file_type::directory;
}

[[nodiscard]] DPTK_INLINE bool is_hidden(const std::string& path) {
    return std::filesystem::path(path).filename().string().starts_with('.');
}

[[nodiscard]] DPTK_INLINE bool has_ending(std::string_view path,
                                          std::initializer_list<std::string_view> endings) {
    return std::any_of(endings.begin(), endings.end(), [&](std::string_view ending) {
        return path.size() >= ending.size() &&
               std::equal(ending.begin(), ending.end(),
                          path.end() - static_cast<std::ptrdiff_t>(ending.size()),
                          [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b - 'A' + 'a' : b); });
    });
}

[[nodiscard]] DPTK_INLINE bool is_decoded(std::string_view path) {
    return has_ending(path, {".jpg", ".jpeg", ".png"});
}

/// Whether torchvision decodes files with this name, and dptk does not.
[[nodiscard]] DPTK_INLINE bool is_other_image(std::string_view path) {
    return has_ending(path, {".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"});
}

/// Returns whether this is an image file that dptk decodes. Throws ArgumentError for an image file that
/// torchvision decodes and dptk does not, since a dataset without it would be another one.
[[nodiscard]] DPTK_INLINE bool is_image_file(std::string_view path) {
    if (is_other_image(path))
        throw ArgumentError(text("ImageFolder: ", path, ": expected JPEG and PNG images, found a file \"*",
                                 path.substr(path.rfind('.')),
                                 "\": convert it, or move it out of the folder"));
    return is_decoded(path);
}

/// Returns the first names, with their number if there are more.
[[nodiscard]] DPTK_INLINE std::string first_names(std::span<const std::string> names) {
    std::string all;
    for (const std::string& name : names.first(std::min<std::size_t>(names.size(), 3)))
        all += (all.empty() ? "" : ", ") + name;
    return names.size() > 3 ? all + ", ..." : all;
}

DPTK_INLINE std::string class_difference(const std::vector<std::string>& expected,
                                         const std::vector<std::string>& found) {
    const auto without = [](const std::vector<std::string>& names, const std::vector<std::string>& others) {
        std::vector<std::string> rest;
        for (const std::string& name : names)
            if (std::find(others.begin(), others.end(), name) == others.end()) rest.push_back(name);
        return rest;
    };
    const auto extra = without(found, expected), missing = without(expected, found);
    if (extra.empty() && missing.empty()) return "found another order";
    if (extra.empty()) return "found no " + first_names(missing);
    return text("found ", first_names(extra), ", which is not there",
                missing.empty() ? "" : ", and not " + first_names(missing));
}

/// Finds what is in folders.
class FolderSearch {
  public:
    FolderSearch(const std::string& root, bool keeps_hidden) : root_(root), keeps_hidden_(keeps_hidden) {}

    /// Returns the paths in a folder, sorted, without those that are left out.
    [[nodiscard]] std::vector<std::string> entries(const std::string& folder) {
        std::vector<std::string> all = entries_of(folder);
        if (keeps_hidden_) return all;
        std::erase_if(all, [&](const std::string& path) {
            if (!is_hidden(path)) return false;
            if (is_folder(path) || is_decoded(path) || is_other_image(path))
                left_out_.insert(path.substr(root_.size() + 1));
            return true;
        });
        return all;
    }

    /// Appends a folder and all folders within it.
    void append_folders(const std::string& folder, std::vector<std::string>& folders, int depth = 0) {
        constexpr int most = 32;  // fewer than the links that the system follows
        if (depth > most)
            throw ArgumentError(text("ImageFolder: expected at most ", most,
                                     " folders within each other, found more in ", folder,
                                     "; does a link lead back to it?"));
        folders.push_back(folder);
        for (const std::string& entry : entries(folder))
            if (is_folder(entry)) append_folders(entry, folders, depth + 1);
    }

    /// Logs what was left out.
    void log_left_out(int rank) const {
        if (left_out_.empty()) return;
        const std::vector<std::string> names(left_out_.begin(), left_out_.end());
        log(LogLevel::info, rank,
            text("ImageFolder: ", root_, ": left out ", names.size(),
                 " folders and images whose names begin with a dot: ", first_names(names),
                 " (keep_hidden has them)"));
    }

  private:
    std::string root_;
    bool keeps_hidden_;
    std::set<std::string> left_out_;  // relative to the root
};

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE ImageFolder::ImageFolder(const ImageFolderOptions& options,
                                     const std::vector<std::string>& sources)
    : options_(options),
      fingerprint_(detail::fnv1a("")),
      findings_(std::make_unique<Findings>(options.rank)) {
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
    detail::FolderSearch search(folder, options_.keep_hidden);
    std::vector<std::string> names, empty;
    for (const std::string& entry : search.entries(folder)) {
        if (!detail::is_folder(entry)) continue;
        const auto label = static_cast<int>(names.size());
        names.push_back(std::filesystem::path(entry).filename().string());
        std::vector<std::string> folders;
        search.append_folders(entry, folders);
        std::sort(folders.begin(), folders.end());
        const std::size_t before = files_.size();
        for (const std::string& one : folders) {
            for (const std::string& file : search.entries(one)) {
                if (!detail::is_folder(file) && detail::is_image_file(file))
                    add_file(file, label, std::string_view(file).substr(folder.size()));
            }
        }
        if (files_.size() == before) empty.push_back(names.back());
    }
    search.log_left_out(options_.rank);
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
                                         first_folder_, ", ", detail::class_difference(class_names_, names)));
    first_folder_ = folder;
    class_names_ = std::move(names);
}

DPTK_INLINE void ImageFolder::add_list(const std::string& list) {
    std::istringstream in(detail::file_text(list));
    const std::filesystem::path folder = std::filesystem::path(list).parent_path();
    std::string line;
    for (std::size_t number = 1; std::getline(in, line); ++number) {
        line.resize(line.find_last_not_of(" \t\r\v\f") + 1);
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
}

DPTK_INLINE void ImageFolder::add_file(std::string path, int label, std::string_view name) {
    fingerprint_ = detail::fnv1a(detail::text(name, ' ', label, '\n'), fingerprint_);
    files_.push_back({std::move(path), label});
}

DPTK_INLINE void ImageFolder::read_class_names(const std::filesystem::path& file) {
    std::istringstream in(detail::file_text(file));
    std::vector<std::string> names;
    for (std::string line; std::getline(in, line);) {
        if (!line.empty() && line.back() == '\r') line.pop_back();
        if (!line.empty()) names.push_back(line);
    }
    if (first_folder_.empty() ? names.size() < classes() : names.size() != classes())
        throw ArgumentError(detail::text("ImageFolder: ", file.string(), ": expected ", classes(),
                                         " class names, as the images have, found ", names.size()));
    class_names_ = std::move(names);
}

DPTK_INLINE ImageFolder::Findings::~Findings() {
    if (unusual.empty()) return;
    std::vector<std::string> names;
    for (const auto& [index, description] : unusual) names.push_back(description);
    log(LogLevel::info, rank,
        detail::text(
            "ImageFolder: ", names.size(), " of ", files,
            " images are unusual, and have the pixels that Pillow decodes: ", detail::first_names(names)));
}

DPTK_INLINE Image ImageFolder::read(std::size_t index) const {
    const std::string& path = files_[index].path;
    DecodeOptions options = options_.decode;
    if (!options.on_warning)
        options.on_warning = [&](const std::string& warning) {
            const std::lock_guard lock(findings_->mutex);
            findings_->files = size();
            findings_->unusual.try_emplace(index, detail::text(path, " (", warning, ")"));
        };
    return read_image(path, options);
}

DPTK_INLINE std::pair<Image, int> ImageFolder::operator[](std::size_t index) const {
    for (std::size_t tried = 0; tried < size(); ++tried) {
        const std::size_t at = (index + tried) % size();
        try {
            return {read(at), files_[at].label};
        } catch (const FormatError& error) {
            if (!options_.skip_damaged) throw;
            skip(at, error.what());
        }
    }
    throw FormatError(detail::text("ImageFolder: all ", size(), " files are damaged"));
}

DPTK_INLINE void ImageFolder::skip(std::size_t index, const char* problem) const {
    const std::lock_guard lock(findings_->mutex);
    if (!findings_->damaged.insert(index).second) return;
    log(LogLevel::warning, options_.rank,
        detail::text("ImageFolder skips a damaged file, and uses the next one instead (",
                     findings_->damaged.size(), " until now): ", problem));
}

DPTK_INLINE std::size_t ImageFolder::skipped() const {
    const std::lock_guard lock(findings_->mutex);
    return findings_->damaged.size();
}

}  // namespace DPTK_NAMESPACE
