// A Trainer in an elastic job: whatever happens to its ranks, values, logs, checkpoints and event files are
// those of a run without faults.
#include <doctest/doctest.h>
#include <dptk/comm/tcp.hpp>
#include <dptk/control/store/tcp_store.hpp>
#include <dptk/data/detail/input_file.hpp>
#include <dptk/train.hpp>
#include <dptk/train/checkpoint/checkpoint.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "elastic/elastic_ranks.hpp"
#include "support/temporary_folder.hpp"

namespace {

using namespace std::chrono_literals;
using Net = dptk::nn::Network<dptk::nn::Reference<float>>;
using Samples = std::vector<std::pair<std::vector<float>, int>>;

constexpr int trainer_epochs = 6;
constexpr std::chrono::milliseconds trainer_heartbeat_timeout{500};

Samples make_samples(std::size_t count, unsigned seed) {
    std::minstd_rand random(seed);
    Samples samples;
    for (std::size_t i = 0; i < count; ++i) {
        const int label = static_cast<int>(i % 3);
        std::vector<float> values(16);
        for (float& value : values)
            value = static_cast<float>(random() % 100) / 100 + static_cast<float>(label) / 2;
        samples.emplace_back(std::move(values), label);
    }
    return samples;
}

/// Publishes the number of steps, and slows the run down, so that faults meet all parts of it.
class Pace : public dptk::Callback {
  public:
    Pace(dptk::Store& store, Net& net) : store_(store), net_(net) {}
    void train_begin(dptk::TrainingRun& run) override {
        std::string buffers;
        net_.for_each_buffer([&](const dptk::nn::NamedBuffer& buffer) {
            buffers.append(static_cast<const char*>(buffer.data.data), buffer.data.bytes());
        });
        const std::vector<std::string> all = dptk::detail::all_gather_text(run.group(), buffers);
        if (run.status().changes == 0) return;
        if (!dptk::detail::all_equal(all)) store_.set("wrong", "the buffers differ after a change");
    }
    void step(dptk::TrainingRun& run) override {
        store_.set("step", std::to_string(run.status().step));
        std::this_thread::sleep_for(2ms);
    }
    void test_batch(dptk::TrainingRun& run) override {
        run.group().barrier();
        std::this_thread::sleep_for(2ms);
    }
    void epoch_end(dptk::TrainingRun& run) override {
        if (run.status().training.samples != samples) store_.set("wrong", "the epoch's number of samples");
        const auto hash = dptk::detail::parameter_hash(run.parameters());
        const std::vector<std::uint64_t> all = run.group().all_gather_value(hash);
        if (!dptk::detail::all_equal(all)) store_.set("wrong", "the values differ between ranks");
    }

    static constexpr std::size_t samples = 250;

  private:
    dptk::Store& store_;
    Net& net_;
};

/// Stops process 1 after the first change, until the test continues it.
class StopAfterChange : public dptk::Callback {
  public:
    void epoch_begin(dptk::TrainingRun& run) override {
        if (run.status().changes == 0 || getenv("DPTK_MEMBER") != std::string("1")) return;
        if (!std::exchange(has_stopped_, true)) raise(SIGSTOP);
    }

  private:
    bool has_stopped_ = false;
};

struct Run {
    std::string name;
    dptk::nn::Graph graph;
    std::size_t shards;
    bool stops = false;  // whether process 1 stops after the first change, before it opens its file
    bool shard_optimizer = false;
};

Run reproducible_run() {
    using namespace dptk::nn;
    return {"reproducible", sequential({1, 4, 4}, {Flatten{}, Linear{8}, ReLU{}, Linear{3}}), 12};
}

Run run_with_batch_norms() {
    using namespace dptk::nn;
    return {"batch norms", sequential({1, 4, 4}, {Conv2d{4}, BatchNorm2d{}, ReLU{}, Flatten{}, Linear{3}}),
            0};
}

int run_trainer(const Run& run, const std::filesystem::path& folder, std::uint16_t port) {
    try {
        const auto store = dptk::TcpStore::connect({"127.0.0.1", port}, {.token = "/test"});
        dptk::ProcessGroup group = dptk::init_process_group(
            {.timeout = 20s, .heartbeat_timeout = trainer_heartbeat_timeout, .elastic = true});
        const Samples training = make_samples(Pace::samples, 1), test = make_samples(50, 2);
        Net net(run.graph, 1);
        dptk::Trainer trainer(group, net,
                              {.epochs = trainer_epochs,
                               .batch_size = 2,
                               .sgd = {.lr = 0.01, .momentum = 0.9},
                               .shard_optimizer = run.shard_optimizer,
                               .seed = 3,
                               .reproducible_shards = run.shards});
        trainer.add(dptk::LearningRate(dptk::CosineSchedule({.total = trainer_epochs})));
        trainer.add(dptk::AverageWeights({.decay = 0.9}));
        trainer.add(dptk::EarlyStopping({.patience = 100}));
        trainer.add(Pace(*store, net));
        trainer.add(dptk::Checkpoint(folder, {.every_steps = 7}));
        trainer.add(dptk::MetricsLog((folder / "log.csv").string()));
        if (run.stops) trainer.add(StopAfterChange());
        trainer.add(dptk::TensorBoard(folder.string()));
        trainer.fit(training, test);
        store->set("hash/" + std::to_string(dptk::detail::parameter_hash(trainer.parameters())), "");
        store->set("hash", std::to_string(dptk::detail::parameter_hash(trainer.parameters())));
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "process %d: %s\n", getpid(), error.what());
        return 1;
    }
}

/// Reads the fields of a message in the format of protocol buffers.
class Message {
  public:
    explicit Message(std::string_view bytes) : bytes_(bytes) {}

    /// Reads the next field; returns false at the end.
    bool next() {
        if (bytes_.empty()) return false;
        const std::uint64_t key = varint();
        field = static_cast<int>(key >> 3);
        const int type = static_cast<int>(key & 7);
        number = type == 0 ? varint() : 0;
        content = take(type == 2 ? varint() : type == 1 ? 8 : type == 5 ? 4 : 0);
        return true;
    }

    int field = 0;
    std::uint64_t number = 0;
    std::string_view content;

  private:
    std::uint64_t varint() {
        std::uint64_t value = 0;
        for (int shift = 0;; shift += 7) {
            const auto byte = static_cast<unsigned char>(take(1).front());
            value |= std::uint64_t{byte & 127U} << shift;
            if (byte < 128) return value;
        }
    }

    std::string_view take(std::uint64_t count) {
        const std::string_view taken = bytes_.substr(0, count);
        bytes_.remove_prefix(count);
        return taken;
    }

    std::string_view bytes_;
};

/// A point of a chart.
struct Point {
    std::int64_t step = 0;
    std::string tag;
    std::string value;

    friend bool operator==(const Point&, const Point&) = default;
};

/// Adds the points of an event, as TensorBoard does: a session that begins drops later steps of earlier ones.
void add_event(std::string_view event, std::vector<Point>& points) {
    std::int64_t step = 0;
    Message message(event);
    while (message.next()) {
        if (message.field == 2) step = static_cast<std::int64_t>(message.number);
        if (message.field == 7) std::erase_if(points, [&](const Point& point) { return point.step >= step; });
        if (message.field != 5) continue;
        Message summary(message.content);
        while (summary.next()) {
            Point point{.step = step, .tag = {}, .value = {}};
            Message value(summary.content);
            while (value.next()) {
                if (value.field == 1) point.tag = value.content;
                if (value.field == 2) point.value = value.content;
            }
            if (point.tag != "samples_per_second" && point.tag != "waiting_share") points.push_back(point);
        }
    }
}

/// Returns the points that TensorBoard displays.
std::vector<Point> points_in(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        if (entry.path().filename().string().starts_with("events.")) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    std::vector<Point> points;
    for (const std::filesystem::path& file : files) {
        const std::string bytes = dptk::detail::file_text(file.string());
        for (std::size_t at = 0; at + 12 <= bytes.size();) {
            std::uint64_t size = 0;
            std::memcpy(&size, &bytes[at], sizeof size);
            add_event(std::string_view(bytes).substr(at + 12, size), points);
            at += 12 + size + 4;
        }
    }
    return points;
}

/// Returns the lines of log.csv without the last column, the speed.
std::string log_in(const std::filesystem::path& folder) {
    std::istringstream file(dptk::detail::file_text((folder / "log.csv").string()));
    std::string text;
    for (std::string line; std::getline(file, line);) text += line.substr(0, line.rfind(',')) + '\n';
    return text;
}

/// What a run leaves behind.
struct Left {
    std::vector<Point> points;
    std::string log;
    std::string hash;
};

/// Runs the job, and kills, stops and starts ranks at random.
Left run_job(const Run& run, std::size_t ranks, int changes, unsigned seed) {
    const TemporaryFolder folder;
    std::minstd_rand random(seed);
    ElasticRanks job({.first_size = ranks, .heartbeat_timeout = trainer_heartbeat_timeout, .timeout = 30s},
                     [&](std::uint16_t port) { return run_trainer(run, folder / "", port); });
    const auto steps_done = [&] { return std::atoll(job.store().find("step").value_or("0").c_str()); };
    for (int change = 0; change < changes; ++change) {
        const std::int64_t until = steps_done() + static_cast<std::int64_t>(random() % 6);
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(random() % 15);
        static_cast<void>(job.run_until([&] {
            if (run.shard_optimizer)  // a second rank must not be lost in the same step
                return steps_done() >= until + 3 || job.running().empty();
            return steps_done() >= until || job.running().empty() || std::chrono::steady_clock::now() > end;
        }));
        if (job.running().empty()) break;
        job.disturb(random, {.kill = 50, .stop = 5});
    }
    REQUIRE(job.run_until_all_have_ended());
    CHECK(job.failures() == 0);
    CHECK(job.store().find("wrong").value_or("nothing is wrong") == "nothing is wrong");
    MESSAGE(run.name << ": seed " << seed << ", generations " << job.monitor().generation().number);
    return {points_in(folder / ""), log_in(folder / ""), job.store().find("hash").value_or("none")};
}

int seeds_of_trainer() {
    const char* const given = std::getenv("DPTK_TEST_SEEDS");
    return given == nullptr ? 2 : std::atoi(given);
}

std::size_t count_lines(const std::string& text) {
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

TEST_CASE("an elastic run of a Trainer leaves what a run without faults leaves") {
    const Run run = reproducible_run();
    const Left expected = run_job(run, 1, 0, 0);
    REQUIRE(count_lines(expected.log) == trainer_epochs + 1);
    REQUIRE(expected.points.size() > 40);
    for (int seed = 1; seed <= seeds_of_trainer(); ++seed) {
        CAPTURE(seed);
        const Left left = run_job(run, 4, 20, static_cast<unsigned>(seed));
        CHECK(left.hash == expected.hash);
        CHECK(left.log == expected.log);
        REQUIRE(left.points.size() == expected.points.size());
        for (std::size_t i = 0; i < left.points.size(); ++i) {
            CAPTURE(left.points[i].tag);
            CAPTURE(left.points[i].step);
            REQUIRE(left.points[i] == expected.points[i]);
        }
    }
}

TEST_CASE("a rank 0 that was stopped before it opened its files does not spoil those of the others") {
    Run run = reproducible_run();
    const Left expected = run_job(run, 1, 0, 0);
    run.stops = true;
    const TemporaryFolder folder;
    ElasticRanks job({.first_size = 3, .heartbeat_timeout = trainer_heartbeat_timeout, .timeout = 30s},
                     [&](std::uint16_t port) { return run_trainer(run, folder / "", port); });
    const auto has_steps = [&](std::int64_t steps) {
        return [&, steps] { return std::atoll(job.store().find("step").value_or("0").c_str()) >= steps; };
    };
    REQUIRE(job.run_until(has_steps(5)));
    job.send(3, SIGKILL);  // rank 0 is process 1
    REQUIRE(job.run_until(has_steps(20)));
    job.send(1, SIGCONT);
    REQUIRE(job.run_until_all_have_ended());
    CHECK(job.failures() == 0);
    CHECK(log_in(folder / "") == expected.log);
    CHECK(points_in(folder / "") == expected.points);
}

/// Checks a run whose values depend on its ranks.
void check_log_and_points(const Left& left) {
    CHECK(count_lines(left.log) == trainer_epochs + 1);
    for (std::size_t i = 1; i < left.points.size(); ++i)
        REQUIRE(left.points[i].step >= left.points[i - 1].step);
}

TEST_CASE("the buffers of a network survive the loss of ranks") {
    for (int seed = 1; seed <= seeds_of_trainer(); ++seed) {
        CAPTURE(seed);
        check_log_and_points(run_job(run_with_batch_norms(), 4, 12, static_cast<unsigned>(seed)));
    }
}

TEST_CASE("an elastic run of a Trainer continues with a sharded optimizer") {
    Run run = run_with_batch_norms();
    run.name = "sharded optimizer";
    run.shard_optimizer = true;
    for (int seed = 1; seed <= seeds_of_trainer(); ++seed) {
        CAPTURE(seed);
        check_log_and_points(run_job(run, 4, 12, static_cast<unsigned>(seed)));
    }
}
