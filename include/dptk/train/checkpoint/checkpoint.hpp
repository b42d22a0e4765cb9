/// Checkpoint, a callback that saves the run, and continues where the newest checkpoint was saved.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/train/callback.hpp"
#include "dptk/train/callbacks/monitor.hpp"
#include "dptk/train/checkpoint/checkpoint_folder.hpp"

namespace DPTK_NAMESPACE {

/// Options of Checkpoint.
struct CheckpointOptions {
    /// Whether the run continues from the folder's newest intact checkpoint, if there is a checkpoint. It is
    /// an error if none of them is intact. If false, it is an error if there is one.
    bool resume = true;
    /// The checkpoint from which the run continues instead, such as `runs/digits/step-00000123` or
    /// `runs/digits/best`; empty: none. It is an error if the run's own folder has one of another run, or of
    /// a later step.
    std::filesystem::path resume_from = {};
    std::size_t keep_last = 2;     ///< See CheckpointFolderOptions.
    std::int64_t every_steps = 0;  ///< Saves after this number of steps too; 0: only after epochs.
    /// The checkpoint after the epoch with the best result is kept as `best`; nullopt: none is. A monitor
    /// other than Monitor::automatic that an evaluation does not report is an error on all ranks.
    std::optional<Monitor> monitor = Monitor::automatic;
    /// Whether checkpoints are saved. If not, nothing in the folder is changed, and it is an error if there
    /// is no checkpoint to continue from.
    bool saves = true;
    /// Whether rank 0 writes in a background thread, while the run continues with the next steps. The run
    /// only waits for a copy of the state, and for the previous checkpoint. A sharded optimizer's state is
    /// written while the run waits, since rank 0 has no copy of it.
    bool in_background = false;
    /// Called on rank 0 with sentences about what the run continues from, and about damaged checkpoints.
    std::function<void(const std::string&)> remark = {};
};

/// Saves checkpoints after each epoch, at the end, and if the run ends early. Rank 0 reads and writes; the
/// folder need not be visible to other ranks. The run continues bit for bit with the same number of ranks,
/// and with another number it trains each sample of the epoch that was interrupted once. (On a GPU, networks
/// select their kernels by measuring them, so that sums may be rounded differently.) If a checkpoint cannot
/// be read or written, all ranks throw the same error. A second run with the same folder is an error, on all
/// ranks, until the first one has ended or was killed. Add this callback after those whose state it saves.
class Checkpoint : public Callback {
  public:
    /// `folder` is where CheckpointFolder writes; only rank 0 uses it.
    explicit Checkpoint(std::filesystem::path folder, CheckpointOptions options = {});
    ~Checkpoint() override;
    Checkpoint(Checkpoint&&) noexcept;

    DPTK_INLINE void train_begin(TrainingRun& run) override;
    DPTK_INLINE void batch_end(TrainingRun& run) override;
    DPTK_INLINE void epoch_end(TrainingRun& run) override;
    DPTK_INLINE void train_end(TrainingRun& run) override;
    DPTK_INLINE void save(TrainingRun& run, TrainingState& state) override;
    DPTK_INLINE void restore(TrainingRun& run, const TrainingState& state) override;

  private:
    struct Writer;

    /// Ends what this rank writes. Collective.
    void release(ProcessGroup& group);

    /// Makes rank 0 write, after the ranks of an elastic job have changed. Collective.
    void take_over(ProcessGroup& group);

    void write(TrainingRun& run, bool is_best);

    void write_sharded(ProcessGroup& group, const TrainingState& state, std::int64_t step, bool is_best);

    /// Returns what the run continues from, on rank 0.
    [[nodiscard]] std::optional<TrainingState> find(std::vector<std::string>& remarks) const;

    /// Reads options.resume_from.
    [[nodiscard]] TrainingState load(const CheckpointFolder& folder) const;

    /// Throws ArgumentError with the problem if the folder has a checkpoint.
    static void require_none(const CheckpointFolder& folder, const std::string& problem);

    void say(const std::string& remark) const;

    std::filesystem::path path_;
    CheckpointOptions options_;
    detail::BestResult best_;
    std::unique_ptr<Writer> writer_;  // on rank 0
    std::int64_t saved_step_ = -1;    // also kept with the run's state
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/train/checkpoint/checkpoint.ipp"
#endif
