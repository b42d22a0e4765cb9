#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "dptk-run/lines.hpp"

namespace {

using Lines = std::vector<std::string>;

/// Passes the pieces to a splitter one by one, and returns its lines.
Lines split(run::LineSplitter& splitter, const Lines& pieces) {
    Lines lines;
    for (const std::string& piece : pieces) {
        splitter.add(piece, [&](std::string_view line) { lines.emplace_back(line); });
    }
    return lines;
}

Lines split(const Lines& pieces) {
    run::LineSplitter splitter;
    return split(splitter, pieces);
}

}  // namespace

TEST_CASE("a line is returned when its end has arrived") {
    CHECK(split({"on", "e\ntw", "o\n\nthree"}) == Lines{"one\n", "two\n", "\n"});
    CHECK(split({""}).empty());
}

TEST_CASE("a carriage return and a newline are one line end, even in separate pieces") {
    CHECK(split({"a\r\nb\r", "\nc\n"}) == Lines{"a\r\n", "b\r\n", "c\n"});
}

TEST_CASE("a carriage return alone ends a progress line") {
    CHECK(split({"10%\r20%\r", "30%\n"}) == Lines{"10%\r", "20%\r", "30%\n"});
    run::LineSplitter splitter;
    CHECK(split(splitter, {"10%\r"}).empty());
    CHECK(splitter.ends_with_return());
}

TEST_CASE("a line without an end is returned by flush, once") {
    run::LineSplitter splitter;
    CHECK(split(splitter, {"a\nb"}) == Lines{"a\n"});
    Lines lines;
    for (int i = 0; i < 2; ++i) splitter.flush([&](std::string_view line) { lines.emplace_back(line); });
    CHECK(lines == Lines{"b"});
    CHECK(splitter.empty());
}

TEST_CASE("a line that exceeds the limit is split, and no byte is lost") {
    constexpr std::size_t limit = run::LineSplitter::max_line_bytes;
    const std::string longer(limit + 5, 'x');
    CHECK(split({longer + "\n"}) == Lines{std::string(limit, 'x'), "xxxxx\n"});
    CHECK(split({std::string(limit - 1, 'x')}).empty());
    CHECK(split({std::string(limit - 1, 'x'), "\n"}) == Lines{std::string(limit - 1, 'x') + "\n"});
    CHECK(split({std::string(limit, 'x')}) == Lines{std::string(limit, 'x')});
}

TEST_CASE("NUL bytes are preserved") {
    const std::string line("a\0b\n", 4);
    CHECK(split({line}) == Lines{line});
}
