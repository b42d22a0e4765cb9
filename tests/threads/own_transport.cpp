// A transport of two functions between the threads of one process, which polls.
#include <doctest/doctest.h>
#include <dptk/comm/call_wait.hpp>
#include <dptk/comm/communicator.hpp>
#include <dptk/comm/thread.hpp>
#include <dptk/control/store/in_process_store.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "support/messages_only.hpp"
#include "support/ranks.hpp"

namespace {

/// The messages that have been sent and not yet received, by sender, receiver and tag.
struct Mail {
    std::mutex mutex;
    std::map<std::tuple<int, int, int>, std::deque<std::vector<char>>> messages;
};

class MailTransport final : public dptk::Transport {
  public:
    MailTransport(int rank, std::shared_ptr<Mail> mail) : rank_(rank), mail_(std::move(mail)) {}

    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return 3; }
    [[nodiscard]] std::string_view backend() const override { return "mail"; }
    [[nodiscard]] dptk::TransportCapabilities capabilities() const override {
        return {.is_interruptible = true};
    }

    void send(const dptk::Buffer& buffer, int to, int tag) override {
        const auto* bytes = static_cast<const char*>(buffer.data);
        const std::lock_guard lock(mail_->mutex);
        mail_->messages[{rank_, to, tag}].emplace_back(bytes, bytes + buffer.bytes());
    }

    void recv(const dptk::Buffer& buffer, int from, int tag) override {
        while (!take(buffer, from, tag)) {
            dptk::check_call();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }

  private:
    [[nodiscard]] bool take(const dptk::Buffer& buffer, int from, int tag) {
        const std::lock_guard lock(mail_->mutex);
        auto& waiting = mail_->messages[{from, rank_, tag}];
        if (waiting.empty()) return false;
        std::memcpy(buffer.data, waiting.front().data(), buffer.bytes());
        waiting.pop_front();
        return true;
    }

    int rank_;
    std::shared_ptr<Mail> mail_;
};

/// Runs fn(group) as each of three ranks, which share a store. Returns what each rank has thrown.
template <class Fn>
std::array<std::string, 3> run_ranks(Fn fn) {
    const auto mail = std::make_shared<Mail>();
    const auto store = std::make_shared<dptk::InProcessStore>();
    std::array<std::string, 3> thrown;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) {
        threads.emplace_back([&, rank] {
            try {
                dptk::ProcessGroup group(
                    dptk::BasicCommunicator<MailTransport>(MailTransport(rank, mail), {.store = store}));
                fn(group);
            } catch (const std::exception& error) {
                thrown[static_cast<std::size_t>(rank)] = error.what();
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    return thrown;
}

}  // namespace

TEST_CASE("two functions that poll make a group with time limits and reported failures") {
    const auto begin = std::chrono::steady_clock::now();
    SUBCASE("every rank sums") {
        const auto thrown = run_ranks([](dptk::ProcessGroup& group) {
            for (int i = 0; i < 20; ++i) CHECK(group.all_reduce_value(group.rank()) == 3);
        });
        for (const std::string& text : thrown) CHECK(text == "");
    }
    SUBCASE("one rank throws") {
        const auto thrown = run_ranks([](dptk::ProcessGroup& group) {
            group.barrier();
            if (group.rank() == 1) throw std::runtime_error("had enough");
            int number = 0;
            group.recv(std::span(&number, 1), 2 - group.rank());
        });
        CHECK(thrown[1] == "had enough");
        for (const std::size_t rank : {0U, 2U})
            CHECK(test::contains(thrown[rank], "rank 1 left its process group because of an exception"));
    }
    SUBCASE("a call has a time limit of its own") {
        const auto thrown = run_ranks([](dptk::ProcessGroup& group) {
            int number = 0;
            const std::span one(&number, 1);
            if (group.rank() == 0) group.broadcast(one, 1, {.timeout = std::chrono::milliseconds(300)});
            group.recv(one, 0);
        });
        CHECK(test::contains(thrown[0], "#1 has not completed within 300 ms; missing: rank 1"));
        for (const std::size_t rank : {1U, 2U}) CHECK(test::contains(thrown[rank], "within 300 ms"));
    }
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
}

namespace {

/// Forwards to a transport between threads, and counts the calls of the functions that can be overridden.
class CountingTransport final : public dptk::Transport {
  public:
    using Counts = std::map<std::string, int>;

    CountingTransport(std::unique_ptr<dptk::Transport> threads, bool is_capable, Counts& counts)
        : threads_(std::move(threads)), is_capable_(is_capable), counts_(counts) {}

    [[nodiscard]] int rank() const override { return threads_->rank(); }
    [[nodiscard]] int size() const override { return threads_->size(); }
    [[nodiscard]] std::string_view backend() const override { return "counting"; }
    [[nodiscard]] std::shared_ptr<dptk::detail::ControlPlane> control() const override {
        return threads_->control();
    }
    [[nodiscard]] dptk::TransportCapabilities capabilities() const override {
        return {.recv_any = is_capable_,
                .probe = is_capable_,
                .start_message = is_capable_,
                .duplicate = is_capable_,
                .subgroup = is_capable_,
                .allocate = is_capable_,
                .is_interruptible = true};
    }
    [[nodiscard]] int local_size() const override { return 7; }

    void send(const dptk::Buffer& buffer, int to, int tag) override {
        ++counts_["send"];
        threads_->send(buffer, to, tag);
    }
    void recv(const dptk::Buffer& buffer, int from, int tag) override { threads_->recv(buffer, from, tag); }
    [[nodiscard]] int recv_any(const dptk::Buffer& buffer, int tag) override {
        ++counts_["recv_any"];
        return threads_->recv_any(buffer, tag);
    }
    [[nodiscard]] std::optional<dptk::MessageInfo> probe(int from, int tag) override {
        ++counts_["probe"];
        return threads_->probe(from, tag);
    }
    [[nodiscard]] std::shared_ptr<dptk::WorkState> start_message(const dptk::Message& message) override {
        ++counts_["start_message"];
        return threads_->start_message(message);
    }
    void run(const dptk::Collective& call) override {
        if (call.verb != dptk::Verb::all_reduce) return Transport::run(call);
        ++counts_["all_reduce"];
        threads_->run(call);
    }
    [[nodiscard]] std::unique_ptr<dptk::Transport> duplicate() override {
        ++counts_["duplicate"];
        return std::make_unique<CountingTransport>(threads_->duplicate(), is_capable_, counts_);
    }
    [[nodiscard]] std::unique_ptr<dptk::Transport> subgroup(std::span<const int> ranks,
                                                            std::string_view name) override {
        ++counts_["subgroup"];
        return std::make_unique<CountingTransport>(threads_->subgroup(ranks, name), is_capable_, counts_);
    }
    [[nodiscard]] std::shared_ptr<void> allocate(std::size_t bytes) override {
        ++counts_["allocate"];
        return threads_->allocate(bytes);
    }

  private:
    std::unique_ptr<dptk::Transport> threads_;
    bool is_capable_;
    Counts& counts_;
};

}  // namespace

TEST_CASE("what a transport overrides is used; without a capability, it is composed or refused") {
    for (const bool is_capable : {true, false}) {
        CAPTURE(is_capable);
        const dptk::detail::ThreadJob job(2, {});
        dptk::launch_threads(2, [&](dptk::ProcessGroup& outer) {
            CountingTransport::Counts counts;
            const int rank = outer.rank();
            dptk::ProcessGroup group = dptk::BasicCommunicator(CountingTransport(
                std::make_unique<dptk::ThreadTransport>(job.transport(rank)), is_capable, counts));
            CHECK(group.local_size() == 7);

            CHECK(group.all_reduce_value(rank + 1) == 3);
            CHECK(counts["all_reduce"] == 1);
            CHECK(counts["send"] == 0);
            CHECK(group.all_gather_value(rank) == std::vector{0, 1});
            CHECK(counts["send"] > 0);
            CHECK(group.allocate<int>(3)[2] == 0);
            const int expected = is_capable ? 1 : 0;
            CHECK(counts["allocate"] == expected);

            std::vector<int> one{rank};
            if (rank == 0) group.send_async(one, 1).wait();
            if (rank == 1) CHECK(group.recv(std::span(one), 0) == 0);
            CHECK(one[0] == 0);
            CHECK(counts["start_message"] == (rank == 0 ? expected : 0));
            if (!is_capable) {
                CHECK_THROWS_WITH_AS(group.recv(std::span(one)),
                                     doctest::Contains("counting has no recv_any"), dptk::ArgumentError);
                CHECK_THROWS_WITH_AS(static_cast<void>(group.try_probe()),
                                     doctest::Contains("counting has no probe"), dptk::ArgumentError);
                CHECK_THROWS_WITH_AS(static_cast<void>(group.duplicate()),
                                     doctest::Contains("counting has no duplicate"), dptk::ArgumentError);
                CHECK_THROWS_WITH_AS(static_cast<void>(group.subgroup({0})),
                                     doctest::Contains("counting has no subgroup"), dptk::ArgumentError);
                return;
            }
            static_cast<void>(group.try_probe());
            if (rank == 0) group.send(one, 1);
            if (rank == 1) CHECK(group.recv(std::span(one)) == 0);
            CHECK(group.subgroup({0, 1}).all_reduce_value(1) == 2);
            CHECK(group.duplicate().all_reduce_value(1) == 2);
            CHECK(counts["duplicate"] == 1);
            CHECK(counts["probe"] == 1);
            CHECK(counts["recv_any"] == rank);
            CHECK(counts["subgroup"] == 1);
        });
    }
}

TEST_CASE("threads sum by the algorithm that the group or the call chooses") {
    const auto sum_of = [](dptk::ProcessGroup& group, const dptk::CallOptions& options) {
        std::vector<float> data(1000);
        for (std::size_t i = 0; i < data.size(); ++i)
            data[i] = 1.0F / static_cast<float>(i + 3 * static_cast<std::size_t>(group.rank()) + 1);
        group.all_reduce(data, options);
        return data;
    };
    using dptk::AllReduceAlgorithm;
    for (const auto algorithm : {AllReduceAlgorithm::ring, AllReduceAlgorithm::tree}) {
        CAPTURE(dptk::algorithm_name(algorithm));
        const dptk::detail::ThreadJob job(5, {});
        dptk::launch_threads(5, [&](dptk::ProcessGroup& group) {
            dptk::ProcessGroup over_messages = dptk::BasicCommunicator(test::MessagesOnly(job, group.rank()));
            const std::vector<float> expected = sum_of(over_messages, {.algorithm = algorithm});
            CHECK((sum_of(group, {.algorithm = algorithm}) == expected));
            CHECK((sum_of(group, {}) != expected));
            group.set_all_reduce_algorithm(algorithm);
            CHECK((sum_of(group, {}) == expected));
            CHECK((sum_of(group, {.timeout = std::chrono::minutes(1)}) == expected));
        });
    }
}
