// Checks the numbers in docs/collectives.md for threads, and for transports that have only send and recv.
#include <doctest/doctest.h>
#include <dptk/comm/thread.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <map>
#include <string>
#include <vector>

#include "support/messages_only.hpp"
#include "support/verb_table.hpp"

namespace {

/// Counts the messages that each rank sends.
class CountingMessages final : public dptk::Transport {
  public:
    CountingMessages(const dptk::detail::ThreadJob& job, int rank, std::atomic<int>& sends)
        : messages_(job, rank), sends_(&sends) {}

    [[nodiscard]] int rank() const noexcept override { return messages_.rank(); }
    [[nodiscard]] int size() const noexcept override { return messages_.size(); }
    [[nodiscard]] std::string_view backend() const noexcept override { return "counting messages"; }
    void send(const dptk::Buffer& buffer, int to, int tag) override {
        ++*sends_;
        messages_.send(buffer, to, tag);
    }
    void recv(const dptk::Buffer& buffer, int from, int tag) override { messages_.recv(buffer, from, tag); }

  private:
    test::MessagesOnly messages_;
    std::atomic<int>* sends_;
};

/// Evaluates a formula for n ranks and slices of s segments.
int evaluate(const std::string& formula, int n, int s) {
    const int log2_n = static_cast<int>(std::bit_width(static_cast<unsigned>(n))) - 1;
    const std::map<std::string, int> formulas = {{"1", 1},
                                                 {"s", s},
                                                 {"n", n},
                                                 {"n-1", n - 1},
                                                 {"2(n-1)", 2 * (n - 1)},
                                                 {"(s+1)(n-1)", (s + 1) * (n - 1)},
                                                 {"s(n-1)+1", s * (n - 1) + 1},
                                                 {"s(n-1)", s * (n - 1)},
                                                 {"log2 n", log2_n},
                                                 {"s log2 n", s * log2_n},
                                                 {"2 log2 n", 2 * log2_n}};
    REQUIRE_MESSAGE(formulas.contains(formula), formula);
    return formulas.at(formula);
}

}  // namespace

TEST_CASE("docs/collectives.md: the busiest rank sends as many messages as it says") {
    for (const test::TableRow& row : test::verb_table()) {
        for (const int ranks : {2, 4, 8}) {
            if (ranks == 2 && row[0] == "reduce, up to 1 MiB a rank") continue;  // uses the chain
            const dptk::detail::ThreadJob job(ranks, {});
            std::vector<std::atomic<int>> sends(static_cast<std::size_t>(ranks));
            dptk::launch_threads(ranks, [&](const dptk::ProcessGroup& threads) {
                std::atomic<int>& own = sends[static_cast<std::size_t>(threads.rank())];
                dptk::ProcessGroup group =
                    dptk::BasicCommunicator(CountingMessages(job, threads.rank(), own));
                test::make_call(group, row[0]);
            });
            const int busiest = *std::max_element(sends.begin(), sends.end());
            CHECK_MESSAGE(busiest == evaluate(row[2], ranks, test::segments_of_call(row[0], ranks)), row[0],
                          " on ", ranks, " ranks");
        }
    }
}

TEST_CASE("docs/collectives.md: all verbs of threads are their own") {
    for (const test::TableRow& row : test::verb_table()) CHECK_MESSAGE(row[3] == "in memory", row[0]);
}

TEST_CASE("docs/collectives.md: every verb has a row") {
    std::vector<std::string> named;
    for (const test::TableRow& row : test::verb_table()) named.push_back(row[0].substr(0, row[0].find(',')));
    for (int verb = 0; verb <= static_cast<int>(dptk::Verb::barrier); ++verb)
        CHECK(std::ranges::count(named, dptk::verb_name(static_cast<dptk::Verb>(verb))) > 0);
}
