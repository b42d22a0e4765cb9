#pragma once

#include "dptk/ddp/detail/timeline.hpp"

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <span>
#include <utility>

#include "dptk/control/net/host.hpp"
#include "dptk/core/detail/number_text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::unique_ptr<Timeline> Timeline::from_environment(ProcessGroup& group) {
    const char* path = std::getenv("DPTK_TRACE");
    if (path == nullptr || *path == '\0' || trace::current != nullptr) return nullptr;
    return std::make_unique<Timeline>(group, path);
}

DPTK_INLINE Timeline::Timeline(ProcessGroup& group, std::string path)
    : group_(group), path_(std::move(path)) {
    origin_ = group_.rank() == 0 ? now() : 0;
    group_.broadcast(std::span(&origin_, 1));
    // All ranks of one host share a clock.
    if (group_.local_size() != group_.size()) compare_clocks();
    trace::current = &recorder_;
}

DPTK_INLINE Timeline::~Timeline() {
    if (trace::current == &recorder_) trace::current = nullptr;
}

DPTK_INLINE void Timeline::write() {
    const std::string own = events();
    if (group_.rank() != 0) {
        std::uint64_t length = own.size();
        group_.send(std::span(&length, 1), 0);
        if (length > 0) group_.send(own, 0);
        return;
    }
    std::ofstream file(path_);
    file << "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n" << own;
    for (int rank = 1; rank < group_.size(); ++rank) {
        std::uint64_t length = 0;
        group_.recv(std::span(&length, 1), rank);
        std::string other(length, ' ');
        if (length > 0) group_.recv(other, rank);
        file << ",\n" << other;
    }
    file << "\n]}\n";
    file.close();
    if (!file) throw Error(text("DPTK_TRACE: ", path_, " cannot be written"));
}

DPTK_INLINE std::int64_t Timeline::now() {
    return nanoseconds(trace::Clock::now());
}

DPTK_INLINE std::int64_t Timeline::nanoseconds(trace::Clock::time_point time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

DPTK_INLINE void Timeline::compare_clocks() {
    constexpr int rounds = 16;
    std::int64_t word = 0;
    for (int rank = 1; rank < group_.size(); ++rank) {
        std::int64_t quickest = std::numeric_limits<std::int64_t>::max();
        for (int round = 0; round < rounds; ++round) {
            if (group_.rank() == 0) {
                group_.recv(std::span(&word, 1), rank);
                word = now();
                group_.send(std::span(&word, 1), rank);
            } else if (group_.rank() == rank) {
                const std::int64_t asked = now();
                group_.send(std::span(&word, 1), 0);
                group_.recv(std::span(&word, 1), 0);
                const std::int64_t answered = now();
                if (answered - asked >= quickest) continue;
                quickest = answered - asked;
                offset_ = word - (asked + quickest / 2);
            }
        }
    }
}

DPTK_INLINE std::string Timeline::events() const {
    const int rank = group_.rank();
    std::string out = text(R"({"name": "process_name", "ph": "M", "pid": )", rank,
                           R"(, "args": {"name": "rank )", rank, " (", escaped(process_label()), R"x()"}})x");
    const char* const lanes[] = {"program", "communication"};
    for (int lane = 0; lane < 2; ++lane)
        out += text(",\n", R"({"name": "thread_name", "ph": "M", "pid": )", rank, R"(, "tid": )", lane,
                    R"(, "args": {"name": ")", lanes[lane], R"("}})");
    for (const trace::Event& event : recorder_.events()) {
        const std::int64_t begin = nanoseconds(event.begin) + offset_ - origin_;
        const std::int64_t duration = nanoseconds(event.end) - nanoseconds(event.begin);
        out += text(",\n", R"({"name": ")", escaped(event.name), R"(", "ph": "X", "pid": )", rank,
                    R"(, "tid": )", static_cast<int>(event.lane), R"(, "ts": )", microseconds(begin),
                    R"(, "dur": )", microseconds(duration), "}");
    }
    return out;
}

DPTK_INLINE std::string Timeline::microseconds(std::int64_t nanoseconds) {
    return fixed_text(static_cast<double>(nanoseconds) / 1000, 3);
}

DPTK_INLINE std::string Timeline::escaped(std::string_view name) {
    std::string out;
    for (const char c : name) {
        if (c == '"' || c == '\\') out += '\\';
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    return out;
}

}  // namespace DPTK_NAMESPACE::detail
