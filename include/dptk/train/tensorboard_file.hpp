/// TensorBoardFile, a file of scalars, texts and images that TensorBoard displays. Which values are written,
/// and when, is left to the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "dptk/control/net/socket.hpp"
#include "dptk/core/config.hpp"
#include "dptk/data/image.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// Returns whether the bytes are UTF-8 (RFC 3629).
[[nodiscard]] bool is_utf8(std::string_view bytes) noexcept;

}  // namespace detail

/// Writes an event file (format: tensorboard/compat/proto/event.proto and summary.proto in TensorBoard's
/// sources; records as in TFRecord files). In a job with several ranks, only one rank should write: rank 0.
///
/// Each call appends one record with one system call. A program that crashes therefore loses no record, and
/// TensorBoard may read the file at any time. Tags and texts must be UTF-8; a `/` in a tag groups tags in
/// TensorBoard. The steps of each tag must increase, unless resume_at() is called. If a call throws
/// BackendError, its record is not in the file, and later calls can succeed. One thread at a time may use a
/// file.
class TensorBoardFile {
  public:
    /// Creates the folder, if it does not exist, and a new file in it. The file's name is
    /// `events.out.tfevents.TIME.HOST.PROCESS.NUMBER`, with the time in seconds since 1970. TensorBoard
    /// displays all event files of a folder as one run, and reads them in the order of their names: if the
    /// folder contains a file of the same or a later second, the new file's name has the second after that.
    /// Throws ArgumentError if `folder` is empty, and BackendError if the folder or file cannot be created or
    /// written.
    explicit TensorBoardFile(const std::string& folder);

    /// Returns the path of the file.
    [[nodiscard]] const std::string& path() const noexcept { return path_; }

    /// Declares the records of step `step` and later steps invalid that were written before: by a run that
    /// was interrupted, in other files of the same folder, or in this file. Call it before other calls when a
    /// run continues from a checkpoint, with the first step that will be repeated; otherwise such steps may
    /// be displayed twice. TensorBoard's `EventAccumulator` drops these records, of all tags, when it reads
    /// SessionLog records with the status START, unless `purge_orphaned_data` is false. TensorBoard's data
    /// server ignores SessionLog: it drops a tag's records when one with the same or a lower step follows.
    /// Throws BackendError if the records cannot be written.
    void resume_at(std::int64_t step);

    /// Adds a point to the chart of a tag. The format stores it as a float; NaN and infinities are allowed.
    /// Throws ArgumentError if the tag is empty or not UTF-8, and BackendError if the record cannot be
    /// written.
    void scalar(std::string_view tag, double value, std::int64_t step);

    /// Adds a text, which TensorBoard displays as Markdown. Throws ArgumentError if the tag is empty, or the
    /// tag or content is not UTF-8, and BackendError if the record cannot be written.
    void text(std::string_view tag, std::string_view content, std::int64_t step);

    /// Adds an image, stored as PNG without compression. Throws ArgumentError if the tag is empty or not
    /// UTF-8, or if the image has no pixels, other than 1 or 3 channels, another number of pixels than its
    /// size says, or 1 GiB of pixels, and BackendError if the record cannot be written.
    void image(std::string_view tag, const Image& image, std::int64_t step);

    /// Blocks until all records are on the disk, so that they survive a crash of the host. Throws
    /// BackendError if the system reports that they could not be written, as some network file systems do
    /// only here.
    void flush();

  private:
    /// Writes an event with `content` in the field `field`.
    void write_event(std::int64_t step, std::uint32_t field, std::string_view content);

    /// Writes a summary with one value. `fields` are the fields of the value except its tag.
    void write_value(std::string_view tag, std::int64_t step, std::string_view fields);

    std::string path_;
    detail::FileDescriptor file_;
    std::size_t size_ = 0;  // of the complete records
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/train/tensorboard_file.ipp"
#endif
