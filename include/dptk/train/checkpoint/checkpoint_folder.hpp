/// CheckpointFolder, which writes checkpoints to a folder, and finds the newest one that is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/train/training_state.hpp"
#include "dptk/weights/safetensors_writer.hpp"

namespace DPTK_NAMESPACE {

/// Options of a CheckpointFolder.
struct CheckpointFolderOptions {
    /// The number of newest checkpoints that are kept, at least 2, so that an older one remains if the newest
    /// is damaged. 0 keeps all.
    std::size_t keep_last = 2;
};

/// A checkpoint is a folder `step-00000123` with model.safetensors, which PyTorch can load,
/// training.safetensors, optimizer.safetensors if the optimizer is sharded, and state.json, which has the
/// values, and the size and CRC-32C of the other files. It is written under another name, and renamed once it
/// is on the disk: whatever happens, checkpoints of these names are whole, and the ones before are not
/// touched. `best` is such a folder too.
///
/// No call is collective: use it on one rank, usually rank 0. Other processes may read while one writes.
class CheckpointFolder {
  public:
    /// A checkpoint that is being written.
    class Writer;

    /// Creates the folder if it does not exist. Throws ArgumentError if `keep_last` is 1, and BackendError if
    /// the folder cannot be created.
    explicit CheckpointFolder(std::filesystem::path folder, CheckpointFolderOptions options = {});

    /// Returns the path.
    [[nodiscard]] const std::filesystem::path& path() const noexcept { return folder_; }

    /// Removes what an interrupted save() has left, writes a checkpoint, replaces one of the same step, and
    /// then removes those that are older than the newest `keep_last`. Blocks until it is on the disk. Throws
    /// BackendError if it cannot be written, and ArgumentError if the state has sharded tensors: use a
    /// Writer, and fetch them on all ranks.
    void save(const TrainingState& state, std::int64_t step);

    /// Makes the checkpoint of a step the one in `best`. Throws BackendError if it cannot be copied.
    void mark_best(std::int64_t step);

    /// Returns the steps of all checkpoints, in ascending order.
    [[nodiscard]] std::vector<std::int64_t> steps() const;

    /// Returns whether there is a checkpoint in `best`.
    [[nodiscard]] bool has_best() const;

    /// Returns the newest checkpoint that is complete and not damaged, or else `best`; nullopt if the folder
    /// has no checkpoint at all. Adds a sentence to `remarks` for each newer one that it passes over. Throws
    /// FormatError if all checkpoints are damaged, and the other exceptions of load().
    [[nodiscard]] std::optional<TrainingState> load_newest(std::vector<std::string>& remarks) const;

    /// Reads the checkpoint in a folder such as `runs/digits/step-00000123`. Throws FormatError if it is
    /// damaged, or a file is missing, BackendError if the system cannot read it, and Error if a newer version
    /// of dptk has written it. The state's sharded tensors are read from the file when they are needed.
    [[nodiscard]] static TrainingState load(const std::filesystem::path& checkpoint);

  private:
    [[nodiscard]] std::filesystem::path path_of(std::int64_t step) const;

    /// Puts back checkpoints whose replacement was interrupted.
    void put_back() const;

    /// Returns the paths of checkpoints that are not complete, or have been replaced.
    [[nodiscard]] std::vector<std::filesystem::path> leftovers() const;

    /// Removes the checkpoints that are older than the newest `keep_last`, and than `step`.
    void remove_old(std::int64_t step) const;

    std::filesystem::path folder_;
    CheckpointFolderOptions options_;
};

/// Without complete(), the checkpoint is discarded.
class CheckpointFolder::Writer {
  public:
    /// Removes what an interrupted writer has left, and writes all but the sharded tensors. `folder` must
    /// outlive the writer, and have no other one meanwhile. Throws BackendError if they cannot be written.
    Writer(const CheckpointFolder& folder, const TrainingState& state, std::int64_t step);
    ~Writer();
    Writer(const Writer&) = delete;
    Writer& operator=(const Writer&) = delete;

    /// Writes the next of the state's sharded tensors. Throws ArgumentError if it is another one, and
    /// BackendError if it cannot be written; then only the destructor may follow.
    void append(const StateTensor& tensor);

    /// Ends the checkpoint, and removes old ones. Blocks until it is on the disk. Throws ArgumentError if
    /// sharded tensors are missing, and BackendError if the checkpoint cannot be written.
    void complete();

  private:
    void discard() noexcept;

    const CheckpointFolder& folder_;
    std::int64_t step_;
    std::filesystem::path part_;  // the name until it is complete
    std::map<std::string, std::string> values_;
    std::optional<SafetensorsWriter> sharded_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/train/checkpoint/checkpoint_folder.ipp"
#endif
