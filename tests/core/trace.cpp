#include "dptk/core/trace.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace trace = dptk::trace;

namespace {

std::vector<std::string>& shown() {
    static std::vector<std::string> spans;
    return spans;
}

constexpr trace::Profiler profiler = {
    .begin = [](const char* name) { shown().push_back(name); },
    .end = [] { shown().push_back("end"); },
};

}  // namespace

TEST_CASE("a profiler receives the spans, with and without a recorder") {
    { const trace::Span unseen("unseen"); }
    trace::profiler = &profiler;
    trace::Recorder recorder;
    {
        const trace::Span step("step");
        trace::current = &recorder;
        const trace::Span layer("layer", 3);
    }
    trace::current = nullptr;
    trace::profiler = nullptr;
    { const trace::Span unseen("unseen"); }
    CHECK(shown() == std::vector<std::string>{"step", "layer 3", "end", "end"});
    REQUIRE(recorder.events().size() == 1);
    CHECK(recorder.events()[0].name == "layer 3");
}
