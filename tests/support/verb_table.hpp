// Reads the table of docs/collectives.md that maps each verb to its algorithm and native calls, so that tests
// can compare it with the calls that are made.
#pragma once

#include <doctest/doctest.h>
#include <dptk/comm/process_group.hpp>

#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace test {

/// The cells of a table row, without surrounding blanks.
using TableRow = std::vector<std::string>;

inline std::vector<std::string> cells_of(std::string_view line) {
    std::vector<std::string> cells;
    line.remove_prefix(1);
    while (!line.empty()) {
        const std::size_t end = line.find('|');
        std::string cell(line.substr(0, end));
        cell.erase(0, cell.find_first_not_of(' '));
        cell.erase(cell.find_last_not_of(' ') + 1);
        cells.push_back(cell);
        line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
    }
    return cells;
}

/// Returns the rows of the first table below the heading of a page, with or without the table's header.
inline std::vector<TableRow> table_below(const std::string& heading,
                                         const std::string& page = "collectives.md",
                                         bool with_header = false) {
    std::ifstream file(std::string(DPTK_TEST_SOURCE_DIR) + "/../docs/" + page);
    std::vector<TableRow> rows;
    std::string line;
    bool below = false;
    while (std::getline(file, line)) {
        if (line == heading) below = true;
        if (below && line.starts_with('|')) {
            rows.push_back(cells_of(line));
        } else if (!rows.empty()) {
            break;
        }
    }
    REQUIRE(rows.size() > 4);
    rows.erase(with_header ? rows.begin() + 1 : rows.begin(), rows.begin() + 2);
    return rows;
}

/// Returns the table of the verbs, without send and recv. Its columns are the verb, the algorithm over send
/// and recv, the number of sends of the busiest of n ranks, threads, MPI, and NCCL.
inline std::vector<TableRow> verb_table() {
    std::vector<TableRow> rows = table_below("## What each verb becomes");
    CHECK(rows.back()[0] == "send, recv");
    rows.pop_back();
    return rows;
}

/// The number of elements of the call that a row's first cell names: of all_reduce, reduce and broadcast, or
/// of one rank's part of the other verbs.
inline std::size_t count_of_call(const std::string& row) {
    if (row == "reduce, above") return 2'200'000;
    if (row.ends_with("a rank")) return 20'000;
    if (row.ends_with("above")) return row.starts_with("all_reduce") ? 1'100'000 : 300'000;
    return row == "broadcast" ? 200'000 : 16;
}

/// The number of segments of 256 KiB of that call's buffer or, if a ring combines it, of a slice.
inline int segments_of_call(const std::string& row, int ranks) {
    if (row == "broadcast" && ranks == 2) return 1;
    constexpr std::size_t segment = 65'536;  // elements
    const bool is_whole = row == "broadcast" || row == "reduce, above" || row.starts_with("reduce_scatter");
    const std::size_t parts = is_whole ? 1 : static_cast<std::size_t>(ranks);
    return static_cast<int>((count_of_call(row) + segment * parts - 1) / (segment * parts));
}

/// Makes the call that a row's first cell names: "reduce, above", "all_reduce, 16-bit sums and functions".
/// Makes it in the background if `start` is true.
inline void make_call(dptk::ProcessGroup& group, const std::string& row, bool start = false) {
    const std::string verb = row.substr(0, row.find(','));
    const std::size_t count = count_of_call(row);
    const auto size = static_cast<std::size_t>(group.size());
    std::vector<float> part(count);
    std::vector<float> whole(verb == "all_reduce" ? 0 : count * size);
    std::vector<dptk::bfloat16> narrow(count * size);
    std::vector<std::size_t> counts(size, count);
    const auto buffer = [](auto& elements) { return dptk::detail::buffer_of(elements); };
    const bool sixteen_bit = row.find("16-bit") != std::string::npos;
    dptk::Collective call;
    for (int other = 0; other < static_cast<int>(dptk::Verb::duplicate); ++other) {
        if (dptk::verb_name(static_cast<dptk::Verb>(other)) == verb)
            call.verb = static_cast<dptk::Verb>(other);
    }
    REQUIRE_MESSAGE(dptk::verb_name(call.verb) == verb, row);
    switch (call.verb) {
        case dptk::Verb::all_reduce:
        case dptk::Verb::reduce:
        case dptk::Verb::broadcast:
            call.input = call.output = sixteen_bit ? buffer(narrow) : buffer(part);
            break;
        case dptk::Verb::all_gather_uneven: call.counts = counts; [[fallthrough]];
        case dptk::Verb::all_gather:
        case dptk::Verb::gather:
            call.input = buffer(part);
            call.output = buffer(whole);
            break;
        case dptk::Verb::reduce_scatter:
            call.input = sixteen_bit ? buffer(narrow) : buffer(whole);
            call.output = call.input.slice(static_cast<std::size_t>(group.rank()) * count, count);
            break;
        case dptk::Verb::scatter:
            call.input = buffer(whole);
            call.output = buffer(part);
            break;
        case dptk::Verb::all_to_all: call.input = call.output = buffer(whole); break;
        case dptk::Verb::all_to_all_uneven:
            call.input = call.output = buffer(whole);
            call.counts = call.output_counts = counts;
            break;
        default: break;
    }
    if (start) {
        group.engine().start(call, nullptr).wait();
    } else {
        group.engine().run(call);
    }
}

/// Returns the words of a cell that begin with `prefix`, without commas.
inline std::vector<std::string> words_with(std::string cell, std::string_view prefix) {
    std::vector<std::string> words;
    for (std::size_t begin = 0; begin < cell.size();) {
        std::size_t end = cell.find_first_of(" ,:;", begin);
        if (end == std::string::npos) end = cell.size();
        if (cell.substr(begin, end - begin).starts_with(prefix))
            words.push_back(cell.substr(begin, end - begin));
        begin = end + 1;
    }
    return words;
}

}  // namespace test
