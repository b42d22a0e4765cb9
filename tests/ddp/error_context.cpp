// What errors say to a program: the rank that has found the problem, the other rank, the parameter and the
// step.
#include <doctest/doctest.h>
#include <dptk/comm/agreement.hpp>
#include <dptk/comm/thread.hpp>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/ranks.hpp"

namespace {

using dptk::ProcessGroup;
using dptk::Ready;

/// Returns the E that `fn` throws, if it throws one.
template <class E, class Fn>
std::optional<E> error_of(Fn&& fn) {
    try {
        fn();
    } catch (const E& error) {
        return error;
    }
    return std::nullopt;
}

}  // namespace

TEST_CASE("an agreed error names the first rank that has the problem, on all ranks") {
    test::on_ranks([](ProcessGroup& group) {
        const int first = group.size() / 2;
        const auto error = error_of<dptk::Error>([&] {
            dptk::on_all_or_none(group, [&] {
                if (group.rank() >= first) throw std::runtime_error("no file");
            });
        });
        REQUIRE(error);
        CHECK(error->agreed());
        CHECK(error->rank() == first);
        CHECK(!error->peer());
        CHECK(error->parameter().empty());
        CHECK(!error->step());
    });
}

TEST_CASE("models that differ are an error that names the rank and the parameter, on all ranks") {
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() == 1) return;
        const int wrong = group.size() - 1;
        std::vector<std::vector<float>> values = {{1, 2}, {3}}, gradients;
        if (group.rank() == wrong) values[1].push_back(4);
        gradients = values;
        const auto error =
            error_of<dptk::MismatchError>([&] { dptk::DistributedDataParallel(group, values, gradients); });
        REQUIRE(error);
        CHECK(error->agreed());
        CHECK(error->rank() == wrong);
        CHECK(error->peer() == 0);
        CHECK(error->parameter() == "[1]");
        CHECK(std::string(error->what()).find('\t') == std::string::npos);
    });
}

TEST_CASE("an error of a step names its rank, its parameter and the step, on all ranks") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<std::vector<float>> values = {{1, 2}, {3}}, gradients = values;
        dptk::DistributedDataParallel ddp(group, values, gradients, {.ready = Ready::marked});
        const auto mark_all = [&] {
            ddp.mark_ready(0);
            ddp.mark_ready(1);
        };
        for (int step = 0; step < 3; ++step) {
            mark_all();
            ddp.synchronize();
        }
        const int wrong = group.size() - 1;
        mark_all();
        if (group.rank() == wrong) ddp.mark_ready(1);
        const auto error = error_of<dptk::ArgumentError>([&] { ddp.synchronize(); });
        REQUIRE(error);
        CHECK(error->agreed());
        CHECK(error->rank() == wrong);
        CHECK(error->parameter() == "[1]");
        CHECK(error->step() == 3U);
        const auto unknown = error_of<dptk::ArgumentError>([&] { static_cast<void>(ddp.index_of("bias")); });
        REQUIRE(unknown);
        CHECK(unknown->parameter() == "bias");
        CHECK(unknown->rank() == group.rank());
        mark_all();
        ddp.synchronize();
    });
}

TEST_CASE("drift names its parameter and its step") {
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() == 1) return;
        std::vector<std::vector<float>> values = {{1, 2}, {3}}, gradients = values;
        dptk::DistributedDataParallel ddp(group, values, gradients, {.verify_parameters_every = 1});
        ddp.synchronize();
        if (group.rank() == 0) values[1][0] = 7;
        const auto error = error_of<dptk::MismatchError>([&] { ddp.synchronize(); });
        REQUIRE(error);
        CHECK(error->agreed());
        CHECK(error->parameter() == "[1]");
        CHECK(error->step() == 1U);
    });
}

TEST_CASE("an unusable container names its parameter at construction") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<std::vector<float>> values = {{1, 2}, {3}}, gradients = values;
        const int wrong = group.size() - 1;
        if (group.rank() == wrong) gradients[1].resize(5);
        const auto error = error_of<dptk::ArgumentError>(
            [&] { const dptk::DistributedDataParallel ddp(group, values, gradients); });
        REQUIRE(error);
        CHECK(error->rank() == wrong);
        CHECK(error->parameter() == "[1]");
    });
}

TEST_CASE("a message of another size, and a lost rank, are the peer") {
    if (test::is_launched()) return;
    const auto run_two = [](auto&& first, auto&& second) {
        try {
            dptk::launch_threads(
                2, [&](ProcessGroup& group) { group.rank() == 0 ? first(group) : second(group); });
        } catch (const std::exception&) {  // of the rank that fails
        }
    };
    std::optional<dptk::MismatchError> size;
    run_two(
        [&](ProcessGroup& group) {
            std::vector<float> received(3);
            size = error_of<dptk::MismatchError>([&] { group.recv(received, 1); });
        },
        [](ProcessGroup& group) { group.send(std::vector<float>(2), 0); });
    REQUIRE(size);
    CHECK(!size->agreed());
    CHECK(size->rank() == 0);
    CHECK(size->peer() == 1);
    // The rank is lost during the call, or before it.
    for (const auto delay : {std::chrono::milliseconds(0), std::chrono::milliseconds(200)}) {
        std::optional<dptk::PeerLostError> lost;
        run_two(
            [&](ProcessGroup& group) {
                std::this_thread::sleep_for(delay);
                lost = error_of<dptk::PeerLostError>([&] { group.barrier(); });
            },
            [](ProcessGroup&) { throw std::runtime_error("no more memory"); });
        REQUIRE(lost);
        CHECK(lost->rank() == 0);
        CHECK(lost->peer() == 1);
    }
}
