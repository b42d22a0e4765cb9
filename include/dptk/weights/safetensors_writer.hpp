/// SafetensorsWriter and write_safetensors(): write named tensors to files in the safetensors format, which
/// PyTorch, timm and Hugging Face read (format: https://github.com/huggingface/safetensors, "Format").
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/weights/safetensors_entry.hpp"

namespace DPTK_NAMESPACE {

namespace detail {
class ReplacementFile;
}

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
#include "dptk/weights/safetensors_writer.ipp"
#endif
