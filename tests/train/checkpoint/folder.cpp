// Tests the files of checkpoints.
#include <doctest/doctest.h>
#include <dptk/core/detail/crc32c.hpp>
#include <dptk/core/error.hpp>
#include <dptk/train/checkpoint/checkpoint_folder.hpp>
#include <dptk/weights/safetensors.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/failing_call.hpp"
#include "support/file_size_limit.hpp"
#include "support/temporary_folder.hpp"

namespace {

using dptk::CheckpointFolder;
using dptk::StateTensor;
using dptk::TrainingState;
using Steps = std::vector<std::int64_t>;

TrainingState state_of(float value) {
    const std::vector<float> weight(5000, value);
    TrainingState state;
    state.model.push_back(StateTensor::of<float>("layer.weight", {50, 100}, weight));
    state.training.push_back(StateTensor::of<float>("optimizer.0.layer.weight", {50, 100}, weight));
    state.sharded.described.push_back({"optimizer.1.layer.weight", {50, 100}, dptk::DType::f32, {}});
    state.sharded.fetch = [weight](std::size_t) {
        return StateTensor::of<float>("optimizer.1.layer.weight", {50, 100}, weight);
    };
    state.values["note"] = "a \"text\" of 2 lines\n";
    return state;
}

void save(const CheckpointFolder& folder, const TrainingState& state, std::int64_t step) {
    CheckpointFolder::Writer writer(folder, state, step);
    writer.append(state.sharded.fetch(0));
    writer.complete();
}

/// Leaves the checkpoints of two saves, of which the second was being replaced, and a third one begun.
void leave_interrupted(const std::filesystem::path& run) {
    save(CheckpointFolder(run), state_of(1), 1);
    save(CheckpointFolder(run), state_of(2), 2);
    std::filesystem::rename(run / "step-00000002", run / "step-00000002.old");
    std::filesystem::create_directory(run / "step-00000003.part");
}

float first_value(const TrainingState& state) {
    return state.model.at(0).values<float>().at(0);
}

}  // namespace

TEST_CASE("a checkpoint has what was saved") {
    const TemporaryFolder folder;
    CheckpointFolder checkpoints(folder / "a/b");
    std::vector<std::string> remarks;
    CHECK(!checkpoints.load_newest(remarks));
    save(checkpoints, state_of(0.1F), 12);
    const TrainingState loaded = checkpoints.load_newest(remarks).value();
    CHECK(remarks.empty());
    CHECK(loaded.values == state_of(0).values);
    CHECK(loaded.model.at(0).name == "layer.weight");
    CHECK(loaded.model.at(0).shape == dptk::Shape{50, 100});
    CHECK(loaded.model.at(0).bytes == state_of(0.1F).model.at(0).bytes);
    CHECK(loaded.training.at(0).bytes == state_of(0.1F).training.at(0).bytes);
    CHECK(loaded.sharded.described.at(0).name == "optimizer.1.layer.weight");
    CHECK(loaded.sharded.fetch(0).bytes == state_of(0.1F).training.at(0).bytes);
    const dptk::SafetensorsFile file(folder / "a/b/step-00000012/model.safetensors");
    CHECK(file.metadata().at("format") == "pt");
    CHECK_THROWS_AS(static_cast<void>(loaded.model.at(0).values<double>()), dptk::ArgumentError);
}

TEST_CASE("the newest checkpoints and the best one remain") {
    const TemporaryFolder folder;
    CheckpointFolder checkpoints(folder / "run");
    for (int step = 1; step <= 5; ++step) {
        save(checkpoints, state_of(static_cast<float>(step)), step);
        if (step == 2 || step == 3) checkpoints.mark_best(step);
    }
    CHECK(checkpoints.steps() == Steps{4, 5});
    CHECK(first_value(CheckpointFolder::load(folder / "run/best")) == 3);
    save(checkpoints, state_of(50), 5);
    CHECK(first_value(CheckpointFolder::load(folder / "run/step-00000005")) == 50);
    CheckpointFolder all(folder / "run", {.keep_last = 0});
    save(all, state_of(6), 123456789);
    CHECK(all.steps() == Steps{4, 5, 123456789});
    CHECK_THROWS_AS(CheckpointFolder(folder / "run", {.keep_last = 1}), dptk::ArgumentError);
}

TEST_CASE("what an interrupted save has left is removed, or put back") {
    const TemporaryFolder folder;
    leave_interrupted(folder / "run");
    std::filesystem::create_directory(folder / "run/best.old");
    CheckpointFolder checkpoints(folder / "run");
    CHECK(checkpoints.steps() == Steps{1, 2});
    save(checkpoints, state_of(4), 4);
    CHECK(!std::filesystem::exists(folder / "run/step-00000003.part"));
    CHECK(!std::filesystem::exists(folder / "run/step-00000002.old"));
    CHECK(!std::filesystem::exists(folder / "run/best.old"));
    std::filesystem::rename(folder / "run/step-00000004", folder / "run/step-00000004.old");
    save(checkpoints, state_of(5), 5);
    CHECK(checkpoints.steps() == Steps{4, 5});
    checkpoints.mark_best(5);
    std::filesystem::copy(folder / "run/best", folder / "run/best.old");
    checkpoints.mark_best(5);
    CHECK(!std::filesystem::exists(folder / "run/best.old"));
}

TEST_CASE("reading changes nothing in the folder") {
    const TemporaryFolder folder;
    leave_interrupted(folder / "run");
    std::vector<std::string> remarks;
    CHECK(first_value(CheckpointFolder(folder / "run").load_newest(remarks).value()) == 2);
    CHECK(remarks.empty());
    CHECK(std::filesystem::exists(folder / "run/step-00000002.old"));
    CHECK(std::filesystem::exists(folder / "run/step-00000003.part"));
}

TEST_CASE("files of others remain, and so does what another process writes") {
    const TemporaryFolder folder;
    save(CheckpointFolder(folder / "run"), state_of(1), 1);
    const auto others = {"data.part/a", "data.old/a", "step-3.txt.part/a", "step-.part/a",
                         "step-00000001.old.part/a"};
    for (const char* name : others) {
        std::filesystem::create_directories((folder / "run" / name).parent_path());
        std::ofstream(folder / "run" / name) << "a";
    }
    CheckpointFolder checkpoints(folder / "run");
    const TrainingState state = state_of(2);
    CheckpointFolder::Writer writer(checkpoints, state, 2);
    writer.append(state.sharded.fetch(0));
    std::vector<std::string> remarks;
    CHECK(first_value(CheckpointFolder(folder / "run").load_newest(remarks).value()) ==
          1);  // another process
    writer.complete();
    CHECK(checkpoints.steps() == Steps{1, 2});
    for (const char* name : others) CHECK(std::filesystem::exists(folder / "run" / name));
}

TEST_CASE("a checkpoint that is cut anywhere, or has a wrong bit, is not used") {
    const TemporaryFolder folder;
    CheckpointFolder checkpoints(folder / "run");
    save(checkpoints, state_of(1), 1);
    save(checkpoints, state_of(2), 2);
    for (const char* name :
         {"model.safetensors", "training.safetensors", "optimizer.safetensors", "state.json"}) {
        const std::filesystem::path path = folder / (std::string("run/step-00000002/") + name);
        std::ifstream in(path, std::ios::binary);
        const std::string content(std::istreambuf_iterator<char>(in), {});
        const auto is_passed_over = [&](const std::string& damaged) {
            std::ofstream(path, std::ios::binary) << damaged;
            std::vector<std::string> remarks;
            const auto loaded = checkpoints.load_newest(remarks);
            return loaded && first_value(*loaded) == 1 && remarks.size() == 1 &&
                   remarks[0].find(name) != std::string::npos;
        };
        const std::size_t distance = std::string(name) == "state.json" ? 7 : 4096;
        for (std::size_t length = 0; length + 1 < content.size(); length += distance) {
            CAPTURE(length);
            CHECK(is_passed_over(content.substr(0, length)));
        }
        for (const std::size_t place : {std::size_t{0}, content.size() / 2, content.size() - 3}) {
            std::string damaged = content;
            damaged[place] = static_cast<char>(damaged[place] ^ 1);
            CHECK(is_passed_over(damaged));
        }
        std::filesystem::remove(path);
        std::vector<std::string> remarks;
        CHECK(first_value(checkpoints.load_newest(remarks).value()) == 1);
        std::ofstream(path, std::ios::binary) << content;
    }
    std::vector<std::string> remarks;
    CHECK(first_value(checkpoints.load_newest(remarks).value()) == 2);
}

TEST_CASE("sharded tensors that are missing, or too many, are errors") {
    const TemporaryFolder folder;
    CheckpointFolder checkpoints(folder / "run");
    CHECK_THROWS_AS(checkpoints.save(state_of(1), 1), dptk::ArgumentError);
    TrainingState state = state_of(1);
    {
        CheckpointFolder::Writer writer(checkpoints, state, 1);
        CHECK_THROWS_AS(writer.complete(), dptk::ArgumentError);
        CHECK_THROWS_AS(writer.append(StateTensor::of<float>("other", {1}, std::vector<float>(1))),
                        dptk::ArgumentError);
        writer.append(state.sharded.fetch(0));
        CHECK_THROWS_AS(writer.append(state.sharded.fetch(0)), dptk::ArgumentError);
    }
    CHECK(checkpoints.steps().empty());
    state.sharded = {};
    {
        CheckpointFolder::Writer writer(checkpoints, state, 1);
        CHECK_THROWS_AS(writer.append(state.training.at(0)), dptk::ArgumentError);
    }
    checkpoints.save(state, 1);
    CHECK(CheckpointFolder::load(folder / "run/step-00000001").sharded.described.empty());
}

TEST_CASE("a full disk is an error, and leaves the checkpoints before it as they were") {
    const TemporaryFolder folder;
    CheckpointFolder checkpoints(folder / "run");
    save(checkpoints, state_of(1), 1);
    {
        const test::FileSizeLimit limit(8192);
        CHECK_THROWS_AS(save(checkpoints, state_of(2), 2), dptk::BackendError);
        CHECK_THROWS_AS(save(checkpoints, state_of(2), 1), dptk::BackendError);
    }
    CHECK(checkpoints.steps() == Steps{1});
    CHECK(first_value(CheckpointFolder::load(folder / "run/step-00000001")) == 1);
    CHECK_THROWS_AS(static_cast<void>(CheckpointFolder::load(folder / "run/step-00000007")),
                    dptk::FormatError);
}

TEST_CASE("a checkpoint that the system cannot read is an error, and is not passed over") {
    const TemporaryFolder folder;
    const CheckpointFolder checkpoints(folder / "run");
    save(checkpoints, state_of(1), 1);
    save(checkpoints, state_of(2), 2);
    const auto before = test::files_in(folder / "run");
    const auto load = [&] {
        std::vector<std::string> remarks;
        static_cast<void>(checkpoints.load_newest(remarks));
    };
    for (const char* name :
         {"state.json", "model.safetensors", "training.safetensors", "optimizer.safetensors"}) {
        const std::string path = folder / (std::string("run/step-00000002/") + name);
        CHECK(test::wrong_on_failing<dptk::BackendError>({"open", "read"}, path, path, load) == "");
    }
    const std::string run = folder / "run";
    CHECK(test::wrong_on_failing<dptk::BackendError>({"open"}, run, run, load) == "");
    CHECK(test::files_in(folder / "run") == before);
}

TEST_CASE("a checkpoint that the system cannot write is an error, and the folder remains as it was") {
    const TemporaryFolder folder;
    CheckpointFolder checkpoints(folder / "run");
    save(checkpoints, state_of(1), 1);
    save(checkpoints, state_of(2), 2);
    checkpoints.mark_best(1);
    const auto before = test::files_in(folder / "run");
    const auto save_again = [&] { save(checkpoints, state_of(3), 2); };
    for (const char* name :
         {"state.json", "model.safetensors", "training.safetensors", "optimizer.safetensors"}) {
        const std::string path = folder / (std::string("run/step-00000002.part/") + name);
        CHECK(test::wrong_on_failing<dptk::BackendError>({"open", "write", "fsync", "rename"}, path, path,
                                                         save_again) == "");
    }
    const std::string step = folder / "run/step-00000002", best = folder / "run/best";
    CHECK(test::wrong_on_failing<dptk::BackendError>({"rename"}, step + ".old", step, save_again) == "");
    const auto mark = [&] { checkpoints.mark_best(2); };
    for (const char* ending : {".old", ".part"})  // of the two renames that replace a folder
        CHECK(test::wrong_on_failing<dptk::BackendError>({"rename"}, best + ending, best, mark) == "");
    CHECK(test::files_in(folder / "run") == before);
}

TEST_CASE("a checkpoint that a newer dptk has written is an error, and is not passed over") {
    const TemporaryFolder folder;
    const CheckpointFolder checkpoints(folder / "run");
    save(checkpoints, state_of(1), 1);
    save(checkpoints, state_of(2), 2);
    const std::filesystem::path path = folder / "run/step-00000002/state.json";
    auto json = nlohmann::ordered_json::parse(std::ifstream(path));
    json.erase("crc32c");
    json["format"] = 2;
    json["dptk"] = "9.8.7";
    json["crc32c"] = dptk::detail::crc32c(json.dump());
    std::ofstream(path) << json.dump(1) << '\n';
    std::vector<std::string> remarks;
    std::string text;
    try {
        static_cast<void>(checkpoints.load_newest(remarks));
    } catch (const dptk::FormatError&) {
    } catch (const dptk::Error& error) {
        text = error.what();
    }
    CHECK(text ==
          path.string() + ": expected format 1, found 2, which dptk 9.8.7 has written: use that version");
}

TEST_CASE("if no newer checkpoint can be used, the best one is, and without it there is an error") {
    const TemporaryFolder folder;
    CheckpointFolder checkpoints(folder / "run");
    save(checkpoints, state_of(1), 1);
    checkpoints.mark_best(1);
    save(checkpoints, state_of(2), 2);
    std::filesystem::remove(folder / "run/step-00000001/state.json");
    std::filesystem::remove(folder / "run/step-00000002/model.safetensors");
    std::vector<std::string> remarks;
    CHECK(first_value(checkpoints.load_newest(remarks).value()) == 1);
    REQUIRE(remarks.size() == 3);
    CHECK(remarks[0].starts_with("the checkpoint of step 2 is not used: "));
    CHECK(remarks[1].starts_with("the checkpoint of step 1 is not used: "));
    CHECK(remarks[2] == "the checkpoint `best` is used instead");

    std::filesystem::rename(folder / "run/best", folder / "run/best.old");  // while it is replaced
    CHECK(first_value(checkpoints.load_newest(remarks).value()) == 1);
    std::filesystem::remove(folder / "run/best.old/state.json");
    const auto before = test::files_in(folder / "run");
    const std::string run = folder / "run";
    CHECK_THROWS_WITH_AS(
        static_cast<void>(checkpoints.load_newest(remarks)),
        (run +
         ": has checkpoints, but none that can be used: use another folder for a new run, or move "
         "them away; the checkpoint of step 2 is not used: " +
         run + "/step-00000002/model.safetensors: is missing; the checkpoint of step 1 is not used: " + run +
         "/step-00000001/state.json: is missing; the checkpoint `best` is not used: " + run +
         "/best.old/state.json: is missing")
            .c_str(),
        dptk::FormatError);
    CHECK(test::files_in(folder / "run") == before);
}

TEST_CASE("a folder in which only the best checkpoint is left has a checkpoint") {
    const TemporaryFolder folder;
    CheckpointFolder checkpoints(folder / "run");
    save(checkpoints, state_of(1), 1);
    checkpoints.mark_best(1);
    std::filesystem::remove_all(folder / "run/step-00000001");
    std::vector<std::string> remarks;
    const auto loaded = checkpoints.load_newest(remarks);
    REQUIRE(loaded.has_value());
    CHECK(first_value(*loaded) == 1);
    CHECK(remarks == std::vector<std::string>{"the checkpoint `best` is used, since there is no other"});
}
