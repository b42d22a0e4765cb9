#pragma once

#include "dptk/train/checkpoint/checkpoint_folder.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>

#include "dptk/control/net/socket.hpp"
#include "dptk/core/detail/crc32c.hpp"
#include "dptk/core/detail/errno_text.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/detail/input_file.hpp"
#include "dptk/data/detail/replacement_file.hpp"
#include "dptk/weights/safetensors.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// The file of the sharded optimizer's state, which not all checkpoints have.
inline constexpr const char* sharded_file = "optimizer.safetensors";

/// The size and the CRC-32C of a file.
struct FileChecksum {
    std::size_t bytes = 0;
    std::uint32_t crc32c = 0;
};

/// Calls fn(error code), and throws BackendError with the path if it has set one.
template <class Fn>
void on_files(const std::filesystem::path& path, Fn&& fn) {
    std::error_code error;
    fn(error);
    if (error) throw BackendError(text(path.string(), ": ", errno_text(error.value())));
}

/// Returns whether a file exists. Throws BackendError if the system does not say so.
[[nodiscard]] DPTK_INLINE bool file_exists(const std::filesystem::path& path) {
    bool exists = false;
    on_files(path, [&](std::error_code& error) { exists = std::filesystem::exists(path, error); });
    return exists;
}

/// Throws FormatError if a file of a checkpoint is missing.
DPTK_INLINE void require_file(const std::filesystem::path& path) {
    if (!file_exists(path)) throw FormatError(text(path.string(), ": is missing"));
}

/// Throws BackendError if the file cannot be read.
[[nodiscard]] DPTK_INLINE FileChecksum checksum_of(const std::filesystem::path& path) {
    const InputFile file(path);
    FileChecksum sum;
    std::vector<char> piece(std::size_t{1} << 20U);
    while (const std::size_t count = file.read(piece.data(), piece.size(), sum.bytes)) {
        sum.bytes += count;
        sum.crc32c = crc32c({piece.data(), count}, sum.crc32c);
    }
    return sum;
}

/// Throws BackendError if the folder's entries cannot be brought to the disk.
DPTK_INLINE void flush_folder(const std::filesystem::path& path) {
    const FileDescriptor folder(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    // Some file systems cannot flush folders.
    if (!folder.is_open() || (fsync(folder.number()) != 0 && errno != EINVAL))
        throw BackendError(text(path.string(), ": cannot be written: ", errno_text(errno)));
}

/// Returns the elements of a tensor, for functions that only read them.
[[nodiscard]] DPTK_INLINE Buffer read_only_buffer(const StateTensor& tensor) {
    return {const_cast<std::byte*>(tensor.bytes.data()), element_count(tensor.shape), tensor.dtype};
}

[[nodiscard]] DPTK_INLINE std::vector<SafetensorsTensor> as_safetensors(
    const std::vector<StateTensor>& tensors) {
    std::vector<SafetensorsTensor> all;
    for (const StateTensor& tensor : tensors)
        all.push_back({tensor.name, tensor.shape, read_only_buffer(tensor)});
    return all;
}

[[nodiscard]] DPTK_INLINE StateTensor read_tensor(const SafetensorsFile& file,
                                                  const SafetensorsEntry& entry) {
    StateTensor tensor{entry.name, entry.shape, entry.dtype, std::vector<std::byte>(entry.bytes())};
    file.read(entry, {tensor.bytes.data(), entry.count, entry.dtype});
    return tensor;
}

/// Throws Error if a file has tensors of types that only a newer dptk can have written.
DPTK_INLINE void require_readable(const SafetensorsFile& file) {
    if (file.unreadable().empty()) return;
    const UnreadableTensor& tensor = file.unreadable().front();
    throw Error(text(file.path().string(), ": tensor \"", tensor.name, "\" has the type ", tensor.type,
                     ", which this version of dptk does not have"));
}

[[nodiscard]] DPTK_INLINE std::vector<StateTensor> read_tensors(const std::filesystem::path& path) {
    const SafetensorsFile file(path);
    require_readable(file);
    std::vector<StateTensor> all;
    for (const SafetensorsEntry& entry : file.entries()) all.push_back(read_tensor(file, entry));
    return all;
}

/// Returns the tensors of a file, which are read one by one when they are needed.
[[nodiscard]] DPTK_INLINE StreamedTensors stream_tensors(const std::filesystem::path& path) {
    const auto file = std::make_shared<const SafetensorsFile>(path);
    require_readable(*file);
    StreamedTensors tensors;
    for (const SafetensorsEntry& entry : file->entries())
        tensors.described.push_back({entry.name, entry.shape, entry.dtype, {}});
    tensors.fetch = [file](std::size_t i) { return read_tensor(*file, file->entries().at(i)); };
    return tensors;
}

/// Returns the paths of all files and folders in a folder. Throws BackendError if it cannot be read.
[[nodiscard]] DPTK_INLINE std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> all;
    on_files(folder, [&](std::error_code& error) {
        for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
             entry.increment(error))
            all.push_back(entry->path());
    });
    return all;
}

/// Removes a folder, if that is possible.
DPTK_INLINE void remove_quietly(const std::filesystem::path& folder) noexcept {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
}

/// Returns the step of a checkpoint of this name; nullopt if it is not one.
[[nodiscard]] DPTK_INLINE std::optional<std::int64_t> step_of(const std::string& name) {
    long long step = 0;
    int length = 0;
    if (std::sscanf(name.c_str(), "step-%lld%n", &step, &length) != 1 ||
        length != static_cast<int>(name.size()))
        return std::nullopt;
    return step;
}

/// Replaces a folder by another one, in two steps that are each atomic.
DPTK_INLINE void replace_folder(const std::filesystem::path& from, const std::filesystem::path& to) {
    const std::filesystem::path old = to.string() + ".old";
    const bool is_replaced = file_exists(to);
    on_files(to, [&](std::error_code& error) {
        if (is_replaced) std::filesystem::remove_all(old, error);
        if (is_replaced && !error) std::filesystem::rename(to, old, error);
        if (error) return;
        std::filesystem::rename(from, to, error);
        std::error_code ignored;
        if (error && is_replaced) std::filesystem::rename(old, to, ignored);
        if (!error) std::filesystem::remove_all(old, error);
    });
    flush_folder(to.parent_path());
}

}  // namespace detail

DPTK_INLINE CheckpointFolder::CheckpointFolder(std::filesystem::path folder, CheckpointFolderOptions options)
    : folder_(std::move(folder)), options_(options) {
    if (options.keep_last == 1)
        throw ArgumentError(
            "CheckpointFolder: expected a keep_last of 2 or more, so that one checkpoint remains if the "
            "newest is damaged, or 0 to keep all; got 1");
    detail::on_files(folder_,
                     [&](std::error_code& error) { std::filesystem::create_directories(folder_, error); });
}

DPTK_INLINE void CheckpointFolder::put_back() const {
    for (const std::filesystem::path& left : leftovers()) {
        std::filesystem::path target = left;
        target.replace_extension();
        if (left.extension() != ".old" || detail::file_exists(target)) continue;
        detail::on_files(left, [&](std::error_code& error) { std::filesystem::rename(left, target, error); });
    }
}

DPTK_INLINE std::vector<std::filesystem::path> CheckpointFolder::leftovers() const {
    std::vector<std::filesystem::path> all;
    for (const std::filesystem::path& path : detail::entries_of(folder_)) {
        const std::string extension = path.extension().string(), stem = path.stem().string();
        if ((extension == ".part" || extension == ".old") && (stem == "best" || detail::step_of(stem)))
            all.push_back(path);
    }
    return all;
}

DPTK_INLINE std::filesystem::path CheckpointFolder::path_of(std::int64_t step) const {
    char name[32];
    std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
    return folder_ / name;
}

DPTK_INLINE void CheckpointFolder::save(const TrainingState& state, std::int64_t step) {
    if (!state.sharded.described.empty())
        throw ArgumentError("CheckpointFolder::save: the state has sharded tensors: use a Writer");
    Writer(*this, state, step).complete();
}

DPTK_INLINE CheckpointFolder::Writer::Writer(const CheckpointFolder& folder, const TrainingState& state,
                                             std::int64_t step)
    : folder_(folder), step_(step), part_(folder.path_of(step).string() + ".part"), values_(state.values) {
    folder.put_back();
    for (const std::filesystem::path& left : folder.leftovers())
        detail::on_files(left, [&](std::error_code& error) { std::filesystem::remove_all(left, error); });
    detail::on_files(part_, [&](std::error_code& error) { std::filesystem::create_directory(part_, error); });
    try {
        write_safetensors(part_ / "model.safetensors", detail::as_safetensors(state.model),
                          {{"format", "pt"}});
        write_safetensors(part_ / "training.safetensors", detail::as_safetensors(state.training));
        if (state.sharded.described.empty()) return;
        std::vector<SafetensorsEntry> entries;
        for (const StateTensor& tensor : state.sharded.described)
            entries.push_back({tensor.name, tensor.dtype, tensor.shape, 0, element_count(tensor.shape)});
        sharded_.emplace(part_ / detail::sharded_file, std::move(entries));
    } catch (...) {
        discard();
        throw;
    }
}

DPTK_INLINE CheckpointFolder::Writer::~Writer() {
    discard();
}

DPTK_INLINE void CheckpointFolder::Writer::discard() noexcept {
    detail::remove_quietly(part_);
}

DPTK_INLINE void CheckpointFolder::Writer::append(const StateTensor& tensor) {
    if (!sharded_) throw ArgumentError("CheckpointFolder::Writer: the state has no sharded tensors");
    sharded_->append(detail::read_only_buffer(tensor));
}

DPTK_INLINE void CheckpointFolder::Writer::complete() {
    if (sharded_) sharded_->complete();
    nlohmann::ordered_json json = {{"format", 1}, {"dptk", DPTK_VERSION}, {"step", step_}};
    for (const std::string name : {"model.safetensors", "training.safetensors", detail::sharded_file}) {
        if (name == detail::sharded_file && !sharded_) continue;
        const detail::FileChecksum sum = detail::checksum_of(part_ / name);
        json["files"][name] = {{"bytes", sum.bytes}, {"crc32c", sum.crc32c}};
    }
    json["values"] = values_;
    json["crc32c"] = detail::crc32c(json.dump());  // covers the text without this number
    const std::string text = json.dump(1) + '\n';
    detail::ReplacementFile file(part_ / "state.json");
    file.write(text.data(), text.size());
    file.complete();
    detail::flush_folder(part_);
    detail::replace_folder(part_, folder_.path_of(step_));
    folder_.remove_old(step_);
}

DPTK_INLINE void CheckpointFolder::remove_old(std::int64_t step) const {
    std::vector<std::int64_t> all = steps();
    if (options_.keep_last == 0 || all.size() <= options_.keep_last) return;
    all.resize(all.size() - options_.keep_last);
    for (const std::int64_t old : all)
        if (old < step)
            detail::on_files(path_of(old), [&](std::error_code& error) {
                std::filesystem::remove_all(path_of(old), error);
            });
}

DPTK_INLINE void CheckpointFolder::mark_best(std::int64_t step) {
    const std::filesystem::path part = folder_ / "best.part";
    try {
        detail::on_files(part, [&](std::error_code& error) {
            std::filesystem::remove_all(part, error);
            if (!error) std::filesystem::create_directory(part, error);
        });
        for (const std::filesystem::path& file : detail::entries_of(path_of(step)))
            detail::on_files(file, [&](std::error_code& error) {
                std::filesystem::create_hard_link(file, part / file.filename(), error);
                // Some file systems have no links.
                if (error) std::filesystem::copy_file(file, part / file.filename(), error);
            });
        detail::replace_folder(part, folder_ / "best");
    } catch (...) {
        detail::remove_quietly(part);
        throw;
    }
}

DPTK_INLINE std::vector<std::int64_t> CheckpointFolder::steps() const {
    std::vector<std::int64_t> all;
    for (const std::filesystem::path& path : detail::entries_of(folder_)) {
        const std::filesystem::path name = path.extension() == ".old" ? path.stem() : path.filename();
        if (const auto step = detail::step_of(name.string())) all.push_back(*step);
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
}

DPTK_INLINE TrainingState CheckpointFolder::load(const std::filesystem::path& checkpoint) {
    const std::filesystem::path json_path = checkpoint / "state.json";
    const auto damaged = [&](const std::filesystem::path& path, const auto&... what) {
        return FormatError(detail::text(path.string(), ": ", what...));
    };
    detail::require_file(json_path);
    nlohmann::ordered_json json = nlohmann::ordered_json::parse(detail::file_text(json_path), nullptr, false);
    TrainingState state;
    bool has_sharded = false;
    try {
        if (json.is_discarded()) throw damaged(json_path, "it is not JSON: the file is damaged");
        const auto expected = json.at("crc32c").get<std::uint32_t>();
        json.erase("crc32c");
        if (detail::crc32c(json.dump()) != expected) throw damaged(json_path, "the file is damaged");
        if (json.at("format") != 1)  // each format has it and the checksum
            throw Error(detail::text(json_path.string(), ": expected format 1, found ",
                                     json.at("format").dump(), ", which dptk ", json.value("dptk", "?"),
                                     " has written: use that version"));
        for (const auto& [name, expected_sum] : json.at("files").items()) {
            detail::require_file(checkpoint / name);
            const detail::FileChecksum sum = detail::checksum_of(checkpoint / name);
            const auto bytes = expected_sum.at("bytes").get<std::size_t>();
            if (sum.bytes != bytes)
                throw damaged(checkpoint / name, "expected ", bytes, " bytes, found ", sum.bytes);
            if (sum.crc32c != expected_sum.at("crc32c").get<std::uint32_t>())
                throw damaged(checkpoint / name, "the file is damaged");
        }
        has_sharded = json.at("files").contains(detail::sharded_file);
        state.values = json.at("values").get<std::map<std::string, std::string>>();
    } catch (const nlohmann::json::exception& error) {
        throw damaged(json_path, error.what());
    }
    state.model = detail::read_tensors(checkpoint / "model.safetensors");
    state.training = detail::read_tensors(checkpoint / "training.safetensors");
    if (has_sharded) state.sharded = detail::stream_tensors(checkpoint / detail::sharded_file);
    return state;
}

DPTK_INLINE bool CheckpointFolder::has_best() const {
    return detail::file_exists(folder_ / "best") || detail::file_exists(folder_ / "best.old");
}

DPTK_INLINE std::optional<TrainingState> CheckpointFolder::load_newest(
    std::vector<std::string>& remarks) const {
    std::string problems;
    const auto load_intact = [&](std::filesystem::path path,
                                 const std::string& name) -> std::optional<TrainingState> {
        try {
            if (!detail::file_exists(path)) path += ".old";
            return load(path);
        } catch (const FormatError& error) {
            remarks.push_back(detail::text(name, " is not used: ", error.what()));
            problems += "; " + remarks.back();
            return std::nullopt;
        }
    };
    std::vector<std::int64_t> all = steps();
    const bool has_steps = !all.empty();
    for (; !all.empty(); all.pop_back()) {
        std::optional<TrainingState> state =
            load_intact(path_of(all.back()), detail::text("the checkpoint of step ", all.back()));
        if (state) return state;
    }
    if (!has_best() && !has_steps) return std::nullopt;
    std::optional<TrainingState> state;
    if (has_best()) state = load_intact(folder_ / "best", "the checkpoint `best`");
    if (!state)
        throw FormatError(
            detail::text(folder_.string(),
                         ": has checkpoints, but none that can be used: use another folder for a "
                         "new run, or move them away",
                         problems));
    remarks.push_back(
        detail::text("the checkpoint `best` is used", has_steps ? " instead" : ", since there is no other"));
    return state;
}

}  // namespace DPTK_NAMESPACE
