// Checks the tables of docs/collectives.md: records the MPI calls (PMPI) and compares them with the tables.
// With the argument "funneled", MPI is initialized with MPI_THREAD_FUNNELED.
#include <mpi.h>
#include <dptk/comm/agreement.hpp>
#include <dptk/comm/init.hpp>
#include <dptk/comm/mpi.hpp>

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>

#include "support/debug_mode.hpp"
#include "support/verb_table.hpp"

namespace {

bool funneled = false;
std::mutex mutex;
bool recording = false;
std::set<std::string> called;

void record(const char* name) {
    const std::lock_guard lock(mutex);
    if (recording) called.insert(name);
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): MPI's names
#define DPTK_RECORD(name, parameters, arguments) \
    extern "C" int name parameters {             \
        record(#name);                           \
        return P##name arguments;                \
    }
DPTK_RECORD(MPI_Allreduce, (const void* a, void* b, int c, MPI_Datatype d, MPI_Op e, MPI_Comm f),
            (a, b, c, d, e, f))
DPTK_RECORD(MPI_Reduce, (const void* a, void* b, int c, MPI_Datatype d, MPI_Op e, int f, MPI_Comm g),
            (a, b, c, d, e, f, g))
DPTK_RECORD(MPI_Bcast, (void* a, int b, MPI_Datatype c, int d, MPI_Comm e), (a, b, c, d, e))
DPTK_RECORD(MPI_Allgather, (const void* a, int b, MPI_Datatype c, void* d, int e, MPI_Datatype f, MPI_Comm g),
            (a, b, c, d, e, f, g))
DPTK_RECORD(MPI_Allgatherv,
            (const void* a, int b, MPI_Datatype c, void* d, const int* e, const int* f, MPI_Datatype g,
             MPI_Comm h),
            (a, b, c, d, e, f, g, h))
DPTK_RECORD(MPI_Gather,
            (const void* a, int b, MPI_Datatype c, void* d, int e, MPI_Datatype f, int g, MPI_Comm h),
            (a, b, c, d, e, f, g, h))
DPTK_RECORD(MPI_Scatter,
            (const void* a, int b, MPI_Datatype c, void* d, int e, MPI_Datatype f, int g, MPI_Comm h),
            (a, b, c, d, e, f, g, h))
DPTK_RECORD(MPI_Reduce_scatter_block, (const void* a, void* b, int c, MPI_Datatype d, MPI_Op e, MPI_Comm f),
            (a, b, c, d, e, f))
DPTK_RECORD(MPI_Alltoall, (const void* a, int b, MPI_Datatype c, void* d, int e, MPI_Datatype f, MPI_Comm g),
            (a, b, c, d, e, f, g))
DPTK_RECORD(MPI_Barrier, (MPI_Comm a), (a))
DPTK_RECORD(MPI_Send, (const void* a, int b, MPI_Datatype c, int d, int e, MPI_Comm f), (a, b, c, d, e, f))
DPTK_RECORD(MPI_Recv, (void* a, int b, MPI_Datatype c, int d, int e, MPI_Comm f, MPI_Status* g),
            (a, b, c, d, e, f, g))
DPTK_RECORD(MPI_Sendrecv,
            (const void* a, int b, MPI_Datatype c, int d, int e, void* f, int g, MPI_Datatype h, int i, int j,
             MPI_Comm k, MPI_Status* l),
            (a, b, c, d, e, f, g, h, i, j, k, l))
DPTK_RECORD(MPI_Isend, (const void* a, int b, MPI_Datatype c, int d, int e, MPI_Comm f, MPI_Request* g),
            (a, b, c, d, e, f, g))
DPTK_RECORD(MPI_Irecv, (void* a, int b, MPI_Datatype c, int d, int e, MPI_Comm f, MPI_Request* g),
            (a, b, c, d, e, f, g))
DPTK_RECORD(MPI_Iallreduce,
            (const void* a, void* b, int c, MPI_Datatype d, MPI_Op e, MPI_Comm f, MPI_Request* g),
            (a, b, c, d, e, f, g))
DPTK_RECORD(MPI_Ibcast, (void* a, int b, MPI_Datatype c, int d, MPI_Comm e, MPI_Request* f),
            (a, b, c, d, e, f))
DPTK_RECORD(MPI_Ibarrier, (MPI_Comm a, MPI_Request* b), (a, b))
// NOLINTEND(readability-identifier-naming)

namespace {

/// Returns the names of the MPI functions that the ranks call during the action.
template <class Action>
std::set<std::string> calls_of(dptk::ProcessGroup& group, Action&& action) {
    group.barrier();
    {
        const std::lock_guard lock(mutex);
        called.clear();
        recording = true;
    }
    action();
    std::string own;
    {
        const std::lock_guard lock(mutex);
        recording = false;
        for (const std::string& name : called) own += name + ' ';
    }
    std::set<std::string> names;
    for (const std::string& theirs : dptk::detail::all_gather_text(group, own)) {
        for (const std::string& name : test::words_with(theirs, "MPI_")) names.insert(name);
    }
    return names;
}

std::set<std::string> named_in(const std::string& cell) {
    const std::vector<std::string> words = test::words_with(cell, "MPI_");
    return {words.begin(), words.end()};
}

void exchange_in_background(dptk::ProcessGroup& group) {
    int sent = group.rank();
    int received = -1;
    const int other = 1 - group.rank();
    dptk::Work sending = group.send_async(std::span(&sent, 1), other);
    dptk::Work receiving = group.recv_async(std::span(&received, 1), other);
    CHECK(receiving.source_rank() == other);
    sending.wait();
    CHECK(received == other);
}

}  // namespace

TEST_CASE("docs/collectives.md: blocking verbs make the calls to MPI that it says") {
    dptk::ProcessGroup group = dptk::init_process_group();
    REQUIRE(group.size() == 2);
    for (const test::TableRow& row : test::verb_table()) {
        CAPTURE(row[0]);
        CHECK(calls_of(group, [&] { test::make_call(group, row[0]); }) == named_in(row[4]));
    }
    const test::TableRow messages = test::table_below("## What each verb becomes").back();
    int value = 0;
    CHECK(calls_of(group, [&] {
              if (group.rank() == 0) group.send(std::span(&value, 1), 1);
              if (group.rank() == 1) group.recv(std::span(&value, 1), 0);
          }) == named_in(messages[4]));
}

TEST_CASE("docs/collectives.md: verbs in the background do, too") {
    const test::DebugMode unchecked("off");  // debug checks would delay the MPI calls
    dptk::ProcessGroup group = dptk::init_process_group();
    const std::vector<test::TableRow> background = test::table_below("## In the background");
    const auto row_of = [&](const std::string& name) {
        const auto row = std::ranges::find(background, name, [](const test::TableRow& r) { return r[0]; });
        return row == background.end() ? test::TableRow{} : *row;
    };
    const std::string level = funneled ? "MPI below that: all_reduce" : "MPI with MPI_THREAD_MULTIPLE";
    CHECK(calls_of(group, [&] { exchange_in_background(group); }) == named_in(row_of(level)[2]));
    for (const test::TableRow& row : test::verb_table()) {
        CAPTURE(row[0]);
        const test::TableRow own = row_of("MPI below that: " + row[0].substr(0, row[0].find(',')));
        const bool by_itself = funneled && !own.empty() && row[0].find("16-bit") == std::string::npos;
        CHECK(calls_of(group, [&] { test::make_call(group, row[0], true); }) ==
              named_in(by_itself ? own[1] : row[4]));
    }
}

int main(int argc, char** argv) {
    funneled = argc > 1 && std::string(argv[1]) == "funneled";
    setenv("DPTK_SHM", "0", 1);  // otherwise the calls would use shared memory
    int level = 0;
    if (funneled) PMPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    const int result = doctest::Context(argc, argv).run();
    if (funneled) PMPI_Finalize();
    return result;
}
