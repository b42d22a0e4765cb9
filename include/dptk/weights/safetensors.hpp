/// SafetensorsFile: reads named tensors from files in the safetensors format, which PyTorch, timm and Hugging
/// Face read and write (format: https://github.com/huggingface/safetensors, "Format"). Reading a file that
/// does not match the format throws FormatError with the path and the offset. safetensors_writer.hpp writes
/// such files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/weights/safetensors_entry.hpp"

namespace DPTK_NAMESPACE {

/// A file that is open for reading. The constructor reads the header; elements are read when they are needed.
class SafetensorsFile {
  public:
    /// Opens the file. Throws BackendError if it cannot be read, and FormatError if it does not match the
    /// format: its header must be valid, and the tensors must fill the rest of the file without gaps.
    explicit SafetensorsFile(std::filesystem::path path);
    ~SafetensorsFile();
    SafetensorsFile(SafetensorsFile&&) noexcept;
    SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

    /// Returns the path.
    [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

    /// Returns all tensors of types that dptk has, in the order of their bytes.
    [[nodiscard]] const std::vector<SafetensorsEntry>& entries() const noexcept { return entries_; }

    /// Returns the other tensors, in the order of their bytes.
    [[nodiscard]] const std::vector<UnreadableTensor>& unreadable() const noexcept { return unreadable_; }

    /// Returns the entry of this name, valid as long as this object; null if there is no such entry.
    [[nodiscard]] const SafetensorsEntry* find(std::string_view name) const noexcept;

    /// Returns the texts that the writer has added about the file.
    [[nodiscard]] const std::map<std::string, std::string>& metadata() const noexcept { return metadata_; }

    /// Reads a tensor of this file into host memory for as many elements, row-major, and converts each
    /// element to the dtype of `to`, if both are floating-point types. Several threads may read at the same
    /// time. Blocks. Throws ArgumentError if the numbers of elements differ or the elements cannot be
    /// converted, BackendError if the bytes cannot be read, and FormatError if the file has become shorter.
    void read(const SafetensorsEntry& entry, const Buffer& to) const;

  private:
    struct File;

    std::filesystem::path path_;
    std::unique_ptr<File> file_;
    std::vector<SafetensorsEntry> entries_;
    std::vector<UnreadableTensor> unreadable_;
    std::map<std::string, std::size_t, std::less<>> by_name_;
    std::map<std::string, std::string> metadata_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/weights/safetensors.ipp"
#endif
