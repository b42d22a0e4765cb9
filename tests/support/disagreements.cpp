#include "support/disagreements.hpp"

#include <doctest/doctest.h>
#include <dptk/comm/agreement.hpp>

#include <chrono>
#include <cstddef>
#include <utility>

#include "support/agreed_errors.hpp"
#include "support/verb_table.hpp"

namespace test {

namespace {

using dptk::ReduceOp;
using dptk::Verb;

template <class T>
void call(dptk::ProcessGroup& group, Verb verb, std::size_t count, ReduceOp op, int root) {
    const auto size = static_cast<std::size_t>(group.size());
    std::vector<T> part(count);
    std::vector<T> whole(count * size);
    std::vector<T> received(count * size);
    const std::vector<std::size_t> counts(size, count);
    switch (verb) {
        case Verb::all_reduce: return group.all_reduce(part, op);
        case Verb::reduce: return group.reduce(part, root, op);
        case Verb::broadcast: return group.broadcast(part, root);
        case Verb::all_gather: return group.all_gather(part, whole);
        case Verb::all_gather_uneven: return group.all_gather(part, whole, counts);
        case Verb::gather: return group.gather(part, whole, root);
        case Verb::scatter: return group.scatter(whole, part, root);
        case Verb::reduce_scatter: return group.reduce_scatter(whole, part, op);
        case Verb::all_to_all: return group.all_to_all(whole, received);
        case Verb::all_to_all_uneven: return group.all_to_all(whole, received, counts, counts);
        default: return group.barrier();
    }
}

}  // namespace

std::string_view name_of(Disagreement kind) noexcept {
    switch (kind) {
        case Disagreement::count: return "count";
        case Disagreement::empty: return "no elements";
        case Disagreement::dtype: return "dtype";
        case Disagreement::operation: return "operation";
        case Disagreement::root: return "root";
        case Disagreement::verb: return "verb";
        case Disagreement::order: return "order";
    }
    return "";
}

bool can_differ(Verb verb, Disagreement kind) noexcept {
    switch (kind) {
        case Disagreement::count:
        case Disagreement::empty: return dptk::has_buffers(verb) && verb != Verb::all_to_all_uneven;
        case Disagreement::dtype: return dptk::has_buffers(verb);
        case Disagreement::operation: return dptk::reduces(verb);
        case Disagreement::root: return dptk::has_root(verb);
        case Disagreement::verb:
        case Disagreement::order: return true;
    }
    return false;
}

void make_differing_calls(dptk::ProcessGroup& group, Verb verb, Disagreement kind) {
    const bool odd = group.rank() == group.size() - 1;
    const auto is = [&](Disagreement other) { return odd && kind == other; };
    const std::size_t count = is(Disagreement::empty) ? 0 : is(Disagreement::count) ? 4 : 8;
    const ReduceOp op = is(Disagreement::operation) ? ReduceOp::avg : ReduceOp::sum;
    const int root = is(Disagreement::root) ? 1 : 0;
    const Verb other = verb == Verb::broadcast ? Verb::all_reduce : Verb::broadcast;
    if (kind == Disagreement::order) {
        const Verb first = odd ? other : verb;
        const Verb second = odd ? verb : other;
        call<float>(group, first, count, op, root);
        return call<float>(group, second, count, op, root);
    }
    if (is(Disagreement::dtype)) return call<int>(group, verb, count, op, root);
    call<float>(group, is(Disagreement::verb) ? other : verb, count, op, root);
}

std::vector<DisagreementCell> disagreement_cells(std::string_view column) {
    const std::vector<TableRow> rows = table_below("## Calls that differ between ranks", "errors.md", true);
    const TableRow& header = rows.front();
    std::size_t at = 0;
    while (at < header.size() && header[at] != column) ++at;
    REQUIRE_MESSAGE(at < header.size(), column);
    std::vector<DisagreementCell> cells;
    for (int verb = 0; verb <= static_cast<int>(Verb::barrier); ++verb) {
        const TableRow* row = nullptr;
        for (const TableRow& each : rows) {
            if (each[0] == dptk::verb_name(static_cast<Verb>(verb))) row = &each;
        }
        REQUIRE_MESSAGE(row != nullptr, dptk::verb_name(static_cast<Verb>(verb)));
        for (const Disagreement kind : all_disagreements) {
            if (!can_differ(static_cast<Verb>(verb), kind)) continue;
            cells.push_back({static_cast<Verb>(verb), kind, (*row)[at]});
        }
    }
    return cells;
}

void check_is_agreed_error(dptk::ProcessGroup& group, const DisagreementCell& cell) {
    const auto begin = std::chrono::steady_clock::now();
    CHECK_MESSAGE(
        all_throw<dptk::MismatchError>(group, "", [&] { make_differing_calls(group, cell.verb, cell.kind); }),
        dptk::verb_name(cell.verb), ", ", name_of(cell.kind));
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
}

}  // namespace test
