/// ImageFolder, a dataset of image files with labels: folders with one folder for each class, or list files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/data/image.hpp"
#include "dptk/data/images/image_decoder.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// Describes how the classes that were found differ from those that were expected.
[[nodiscard]] std::string class_difference(const std::vector<std::string>& expected,
                                           const std::vector<std::string>& found);

}  // namespace detail

/// One file of an ImageFolder.
struct ImageFile {
    std::string path;  ///< The path to the file.
    int label = 0;     ///< The class, counted from 0.
};

/// How an ImageFolder reads its files.
struct ImageFolderOptions {
    DecodeOptions decode = {};  ///< What the decoders accept.
    /// A file with the name of each class, one on each line. Without it, the classes of folders have the
    /// folders' names, and those of list files have their numbers.
    std::filesystem::path class_names = {};
    /// Use the next intact image in the place of a damaged one, and log each damaged file once. Otherwise a
    /// damaged file is an error.
    bool skip_damaged = false;
    /// Use folders and files whose names begin with a dot as well, as torchvision does. Otherwise they are
    /// left out, since they are other programs' files, such as `.ipynb_checkpoints` and `._1.jpg`.
    bool keep_hidden = false;
    int rank = -1;  ///< The rank that log messages name; information is logged by rank 0, and without a rank.
};

/// Image files of several classes. Satisfies IndexableDataset. A source is a folder or a list file:
///
/// - A folder has one folder for each class. Classes are counted in the order of their names, and all
///   `.jpg`, `.jpeg` and `.png` files in a class's folder, and in folders within it, belong to it, in
///   the order of torchvision's ImageFolder.
/// - A list file has a path, relative to the list file, and a label on each line, separated by a space.
///
/// A file is read and decoded each time its sample is used, possibly in several threads. When the ImageFolder
/// is destroyed, it logs the number and the first names of the images of which DecodeOptions::on_warning
/// tells, unless the options have a function of their own for these.
class ImageFolder {
  public:
    /// Throws ArgumentError if the source does not exist, a class has no images, or the number of class names
    /// differs, FormatError for an invalid line of a file, and BackendError if the system cannot read a file
    /// or folder. Logs what is left out of a folder.
    explicit ImageFolder(const std::filesystem::path& source, const ImageFolderOptions& options = {})
        : ImageFolder(options, {source.string()}) {}

    /// Returns the samples of several sources, one after the other. Also throws ArgumentError if the folders
    /// do not have the same classes.
    [[nodiscard]] static ImageFolder from(const std::vector<std::string>& sources,
                                          const ImageFolderOptions& options = {}) {
        return ImageFolder(options, sources);
    }

    /// Returns the number of files.
    [[nodiscard]] std::size_t size() const noexcept { return files_.size(); }

    /// Returns the decoded image and the label of file `index`, which must be below size(). Throws
    /// FormatError if the file is damaged, unless these are skipped, and BackendError if the file cannot be
    /// read.
    [[nodiscard]] std::pair<Image, int> operator[](std::size_t index) const;

    /// Returns the files, in the order of the samples.
    [[nodiscard]] std::span<const ImageFile> files() const noexcept { return files_; }

    /// Returns the name of each class.
    [[nodiscard]] const std::vector<std::string>& class_names() const noexcept { return class_names_; }

    /// Returns the number of classes; all labels are below it.
    [[nodiscard]] std::size_t classes() const noexcept { return class_names_.size(); }

    /// Returns the number of damaged files that this process has skipped until now.
    [[nodiscard]] std::size_t skipped() const;

    /// Returns a hash of the names and labels of all files, which is the same if the folder is moved.
    [[nodiscard]] std::uint64_t fingerprint() const noexcept { return fingerprint_; }

  private:
    /// What reading has found, in several threads.
    struct Findings {
        explicit Findings(int logging_rank) noexcept : rank(logging_rank) {}
        ~Findings();
        Findings(const Findings&) = delete;
        Findings& operator=(const Findings&) = delete;

        const int rank;
        std::mutex mutex;
        std::set<std::size_t> damaged;               // those that were skipped
        std::map<std::size_t, std::string> unusual;  // what the decoder has warned of
        std::size_t files = 0;
    };

    ImageFolder(const ImageFolderOptions& options, const std::vector<std::string>& sources);

    void add_folder(std::string folder);
    void add_list(const std::string& list);
    void add_file(std::string path, int label, std::string_view name);
    void read_class_names(const std::filesystem::path& file);
    [[nodiscard]] Image read(std::size_t index) const;
    void skip(std::size_t index, const char* problem) const;

    ImageFolderOptions options_;
    std::vector<ImageFile> files_;
    std::vector<std::string> class_names_;  // of the folders, until class_names are read
    std::string first_folder_;
    int largest_label_ = -1;
    std::uint64_t fingerprint_ = 0;
    std::unique_ptr<Findings> findings_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/data/images/image_folder.ipp"
#endif
