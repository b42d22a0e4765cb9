// A transport of two functions between the threads of one process, which polls.
#include <doctest/doctest.h>
#include <dptk/comm/call_wait.hpp>
#include <dptk/comm/communicator.hpp>
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
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "support/ranks.hpp"

namespace {

/// The messages that have been sent and not yet received, by sender, receiver and tag.
struct Mail {
    std::mutex mutex;
    std::map<std::tuple<int, int, int>, std::deque<std::vector<char>>> messages;
};

class MailTransport {
  public:
    static constexpr bool interruptible = true;

    MailTransport(int rank, std::shared_ptr<Mail> mail) : rank_(rank), mail_(std::move(mail)) {}

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int size() const { return 3; }
    [[nodiscard]] static const char* backend() { return "mail"; }

    void send(const dptk::Buffer& buffer, int to, int tag) {
        const auto* bytes = static_cast<const char*>(buffer.data);
        const std::lock_guard lock(mail_->mutex);
        mail_->messages[{rank_, to, tag}].emplace_back(bytes, bytes + buffer.bytes());
    }

    void recv(const dptk::Buffer& buffer, int from, int tag) {
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
