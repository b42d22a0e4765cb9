#pragma once

#include "dptk/train/checkpoint/checkpoint.hpp"

#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>

#include "dptk/comm/agreement.hpp"
#include "dptk/control/launch/job_request.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/train/detail/folder_lock.hpp"

namespace DPTK_NAMESPACE {

/// What rank 0 writes with.
struct Checkpoint::Writer {
    Writer(const std::filesystem::path& path, std::size_t keep_last, const ProcessGroup& group)
        : folder(path, {.keep_last = keep_last}),
          lock(path, group.is_elastic() ? detail::environment_text("DPTK_RUN_ID") : "") {}

    ~Writer() {
        if (thread.joinable()) thread.join();
    }

    /// Waits for the background thread. Throws what it has thrown.
    void wait() {
        if (thread.joinable()) thread.join();
        if (problem) std::rethrow_exception(std::exchange(problem, nullptr));
    }

    void write(const TrainingState& state, std::int64_t step, bool is_best) {
        folder.save(state, step);
        if (is_best) folder.mark_best(step);
    }

    CheckpointFolder folder;
    detail::FolderLock lock;
    std::thread thread;
    std::exception_ptr problem;  // of the background thread
};

namespace detail {

/// Sends a list of tensors from rank 0 to all ranks. Collective.
DPTK_INLINE void broadcast_tensors(ProcessGroup& group, std::vector<StateTensor>& tensors) {
    std::uint64_t count[] = {tensors.size()};
    group.broadcast(count, 0);
    tensors.resize(count[0]);
    for (StateTensor& tensor : tensors) {
        std::tuple<std::string, std::vector<std::size_t>, int, std::size_t> described{
            tensor.name,
            {tensor.shape.begin(), tensor.shape.end()},
            static_cast<int>(tensor.dtype),
            tensor.bytes.size()};
        group.broadcast_object(described, 0);
        const auto& [name, shape, dtype, bytes] = described;
        tensor.name = name;
        tensor.shape.assign(shape.begin(), shape.end());
        tensor.dtype = static_cast<DType>(dtype);
        tensor.bytes.resize(bytes);
        group.broadcast(std::span(reinterpret_cast<std::uint8_t*>(tensor.bytes.data()), bytes), 0);
    }
}

/// Makes tensors that rank 0 fetches available on all ranks. Collective.
DPTK_INLINE void share_streamed(ProcessGroup& group, StreamedTensors& tensors) {
    broadcast_tensors(group, tensors.described);  // without elements
    tensors.is_on_all_ranks = true;
    tensors.fetch = [&group, described = tensors.described, fetch = tensors.fetch](std::size_t i) {
        StateTensor tensor = described.at(i);
        on_all_or_none(group, [&] {
            if (fetch) tensor = fetch(i);
        });
        tensor.bytes.resize(element_count(tensor.shape) * dtype_size(tensor.dtype));
        group.broadcast(std::span(reinterpret_cast<std::uint8_t*>(tensor.bytes.data()), tensor.bytes.size()),
                        0);
        return tensor;
    };
}

DPTK_INLINE void broadcast_state(ProcessGroup& group, TrainingState& state) {
    broadcast_tensors(group, state.model);
    broadcast_tensors(group, state.training);
    share_streamed(group, state.sharded);
    std::vector<std::string> names, values;
    for (const auto& [name, value] : state.values) {
        names.push_back(name);
        values.push_back(value);
    }
    group.broadcast_object(names, 0);
    group.broadcast_object(values, 0);
    for (std::size_t i = 0; i < names.size(); ++i) state.values[names[i]] = values[i];
}

}  // namespace detail

DPTK_INLINE Checkpoint::Checkpoint(std::filesystem::path folder, CheckpointOptions options)
    : path_(std::move(folder)),
      options_(std::move(options)),
      best_(options_.monitor.value_or(Monitor::automatic)) {}

DPTK_INLINE Checkpoint::~Checkpoint() = default;
DPTK_INLINE Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;

DPTK_INLINE void Checkpoint::train_begin(TrainingRun& run) {
    ProcessGroup& group = run.group();
    if (group.is_elastic()) release(group);
    if (run.status().changes > 0) return take_over(group);
    if (run.status().step == 0) best_ = detail::BestResult(options_.monitor.value_or(Monitor::automatic));
    saved_step_ = -1;
    std::optional<TrainingState> state;
    on_all_or_none(group, [&] {
        if (group.rank() != 0) return;
        writer_.reset();  // waits for the background thread of a run that has failed
        if (options_.saves) writer_ = std::make_unique<Writer>(path_, options_.keep_last, group);
        std::vector<std::string> remarks;
        state = find(remarks);
        for (const std::string& remark : remarks) say(remark);
    });
    if (group.all_reduce_value<int>(state ? 1 : 0, ReduceOp::max) == 0) return;
    if (!state) state.emplace();
    detail::broadcast_state(group, *state);
    run.restore(*state);
    saved_step_ = run.status().step;
    if (group.rank() == 0)
        say(detail::text("continuing from the checkpoint of step ", saved_step_, ", after ",
                         run.status().epoch, " epochs"));
}

DPTK_INLINE void Checkpoint::release(ProcessGroup& group) {
    try {
        if (writer_) writer_->wait();
    } catch (const std::exception& error) {
        say(detail::text("a checkpoint was not written: ", error.what()));
    }
    writer_.reset();
    group.barrier();  // rank 0 may be another process now
}

DPTK_INLINE void Checkpoint::take_over(ProcessGroup& group) {
    on_all_or_none(group, [&] {
        if (group.rank() == 0 && options_.saves)
            writer_ = std::make_unique<Writer>(path_, options_.keep_last, group);
    });
}

DPTK_INLINE std::optional<TrainingState> Checkpoint::find(std::vector<std::string>& remarks) const {
    if (options_.saves) {
        if (!options_.resume_from.empty()) return load(writer_->folder);
        if (options_.resume) return writer_->folder.load_newest(remarks);
        require_none(writer_->folder, "of an earlier run: use another folder, or remove this one");
        return std::nullopt;
    }
    if (!options_.resume_from.empty()) return CheckpointFolder::load(options_.resume_from);
    std::optional<TrainingState> state;
    if (std::filesystem::exists(path_)) state = CheckpointFolder(path_).load_newest(remarks);
    if (!state) throw ArgumentError(detail::text(path_.string(), ": expected a checkpoint, found none"));
    return state;
}

DPTK_INLINE TrainingState Checkpoint::load(const CheckpointFolder& folder) const {
    const std::filesystem::path& from = options_.resume_from;
    TrainingState state = CheckpointFolder::load(from);
    std::error_code ignored;
    if (!std::filesystem::equivalent(from / "..", folder.path(), ignored))
        require_none(folder,
                     detail::text("of another run: use another folder for the run that continues from ",
                                  from.string()));
    const std::vector<std::int64_t> steps = folder.steps();
    // From a later one the run would continue the next time.
    if (!steps.empty() && steps.back() > state.number("trainer.step"))
        throw ArgumentError(detail::text(folder.path().string(), ": has a checkpoint of step ", steps.back(),
                                         ", later than ", from.string(),
                                         ": use another folder for the run that continues from it"));
    return state;
}

DPTK_INLINE void Checkpoint::require_none(const CheckpointFolder& folder, const std::string& problem) {
    const std::vector<std::int64_t> steps = folder.steps();
    if (steps.empty() && !folder.has_best()) return;
    const std::string newest =
        steps.empty() ? "the checkpoint `best`" : detail::text("a checkpoint of step ", steps.back());
    throw ArgumentError(detail::text(folder.path().string(), ": has ", newest, ", ", problem));
}

DPTK_INLINE void Checkpoint::say(const std::string& remark) const {
    if (options_.remark) options_.remark(remark);
}

DPTK_INLINE void Checkpoint::batch_end(TrainingRun& run) {
    if (options_.every_steps > 0 && run.status().step % options_.every_steps == 0) write(run, false);
}

DPTK_INLINE void Checkpoint::epoch_end(TrainingRun& run) {
    if (options_.monitor.value_or(Monitor::automatic) != Monitor::automatic)
        best_.require_reported(run, "Checkpoint");
    write(run, best_.update(run.status().test) && options_.monitor.has_value());
}

DPTK_INLINE void Checkpoint::train_end(TrainingRun& run) {
    if (run.status().step > 0 && saved_step_ != run.status().step) write(run, false);
    on_all_or_none(run.group(), [&] {
        const std::unique_ptr<Writer> writer = std::move(writer_);  // ends here, and releases the folder
        if (writer) writer->wait();
    });
}

DPTK_INLINE void Checkpoint::save(TrainingRun& run, TrainingState& state) {
    best_.save(state, "checkpoint.best");
    if (run.group().is_elastic()) state.values["checkpoint.saved_step"] = detail::text(saved_step_);
}

DPTK_INLINE void Checkpoint::restore(TrainingRun& run, const TrainingState& state) {
    best_.restore(state, "checkpoint.best");
    if (run.status().changes > 0) saved_step_ = state.number("checkpoint.saved_step");
}

DPTK_INLINE void Checkpoint::write(TrainingRun& run, bool is_best) {
    if (!options_.saves) return;
    TrainingState state = run.state();
    const std::int64_t step = saved_step_ = run.status().step;
    if (!state.sharded.described.empty()) return write_sharded(run.group(), state, step, is_best);
    on_all_or_none(run.group(), [&] {
        if (!writer_) return;
        writer_->wait();
        if (!options_.in_background) return writer_->write(state, step, is_best);
        writer_->thread = std::thread([writer = writer_.get(), state = std::move(state), step, is_best] {
            try {
                writer->write(state, step, is_best);
            } catch (...) {
                writer->problem = std::current_exception();
            }
        });
    });
}

DPTK_INLINE void Checkpoint::write_sharded(ProcessGroup& group, const TrainingState& state, std::int64_t step,
                                           bool is_best) {
    std::optional<CheckpointFolder::Writer> file;  // on rank 0
    on_all_or_none(group, [&] {
        if (!writer_) return;
        writer_->wait();
        file.emplace(writer_->folder, state, step);
    });
    std::exception_ptr problem;
    for (std::size_t i = 0; i < state.sharded.described.size(); ++i) {
        const StateTensor tensor = state.sharded.fetch(i);  // other ranks send it even if the disk is full
        try {
            if (file && !problem) file->append(tensor);
        } catch (...) {
            problem = std::current_exception();
        }
    }
    on_all_or_none(group, [&] {
        if (problem) std::rethrow_exception(problem);
        if (!file) return;
        file->complete();
        if (is_best) writer_->folder.mark_best(step);
    });
}

}  // namespace DPTK_NAMESPACE
