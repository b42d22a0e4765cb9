/// Files of named tensors in the safetensors format, which PyTorch, timm and Hugging Face read and write
/// (format: https://github.com/huggingface/safetensors, "Format"). Reading a file that does not match the
/// format throws FormatError with the path and the offset.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/tensor.hpp"

namespace DPTK_NAMESPACE {

namespace detail {
class ReplacementFile;
}

/// A tensor of a SafetensorsFile.
struct SafetensorsEntry {
    std::string name;          ///< The name, unique within the file.
    DType dtype = DType::f32;  ///< The type of the elements.
    Shape shape;               ///< The size of each dimension, outermost first.
    std::size_t offset = 0;    ///< The position of the first byte, from the start of the file.
    std::size_t count = 0;     ///< The number of elements.

    /// Returns the number of bytes.
    [[nodiscard]] std::size_t bytes() const noexcept { return count * dtype_size(dtype); }
};

/// A file that is open for reading. The constructor reads the header; elements are read when they are needed.
class SafetensorsFile {
  public:
    /// Opens the file. Throws FormatError if it cannot be read, or does not match the format: its header must
    /// be valid, and the tensors must fill the rest of the file without gaps.
    explicit SafetensorsFile(std::filesystem::path path);
    ~SafetensorsFile();
    SafetensorsFile(SafetensorsFile&&) noexcept;
    SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

    /// Returns the path.
    [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

    /// Returns all tensors, in the order of their bytes.
    [[nodiscard]] const std::vector<SafetensorsEntry>& entries() const noexcept { return entries_; }

    /// Returns the tensor of this name, valid as long as this object; null if there is no such tensor.
    [[nodiscard]] const SafetensorsEntry* find(std::string_view name) const noexcept;

    /// Returns the texts that the writer has added about the file.
    [[nodiscard]] const std::map<std::string, std::string>& metadata() const noexcept { return metadata_; }

    /// Reads a tensor of this file into host memory for as many elements, row-major, and converts each
    /// element to the dtype of `to`. Several threads may read at the same time. Blocks. Throws ArgumentError
    /// if the numbers of elements differ, and FormatError if the bytes cannot be read.
    void read(const SafetensorsEntry& entry, const Buffer& to) const;

  private:
    struct File;

    std::filesystem::path path_;
    std::unique_ptr<File> file_;
    std::vector<SafetensorsEntry> entries_;
    std::map<std::string, std::size_t, std::less<>> by_name_;
    std::map<std::string, std::string> metadata_;
};

/// Writes a file tensor by tensor, so that no more than one of them need be in memory. The file replaces the
/// one at `path` once it is complete and on the disk.
class SafetensorsWriter {
  public:
    /// Writes the header for these tensors, whose offsets are ignored. Throws ArgumentError if two have the
    /// same name, a name is `__metadata__` or not UTF-8, a shape does not match the number of elements, or a
    /// dtype has no name in the format, and BackendError if the file cannot be written.
    SafetensorsWriter(std::filesystem::path path, std::vector<SafetensorsEntry> tensors,
                      const std::map<std::string, std::string>& metadata = {});
    /// Without complete(), discards the file.
    ~SafetensorsWriter();
    SafetensorsWriter(const SafetensorsWriter&) = delete;
    SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

    /// Writes the elements of the next tensor, row-major, in host memory. Throws ArgumentError if there is
    /// none, or it has another dtype or number of elements, and BackendError if the file cannot be written;
    /// then only the destructor may follow.
    void append(const Buffer& data);

    /// Ends the file. Blocks until it is on the disk. Throws ArgumentError if tensors are missing, and
    /// BackendError if the file cannot be written.
    void complete();

  private:
    std::filesystem::path path_;
    std::vector<SafetensorsEntry> tensors_;
    std::unique_ptr<detail::ReplacementFile> file_;
    std::size_t next_ = 0;
};

/// A tensor to write.
struct SafetensorsTensor {
    std::string name;  ///< The name, unique within the file.
    Shape shape;       ///< The size of each dimension, outermost first.
    Buffer data;       ///< The elements, row-major, in host memory.
};

/// Writes a file of tensors, as SafetensorsWriter does, in the order that the format recommends.
void write_safetensors(const std::filesystem::path& path, std::span<const SafetensorsTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/weights/safetensors.ipp"
#endif
