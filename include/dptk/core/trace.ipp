#pragma once

#include "dptk/core/trace.hpp"

#include <utility>

namespace DPTK_NAMESPACE::trace {

DPTK_INLINE void Recorder::record(Event event) {
    constexpr std::size_t most = 1'000'000;
    const std::lock_guard lock(mutex_);
    if (events_.size() < most) events_.push_back(std::move(event));
}

DPTK_INLINE std::vector<Event> Recorder::events() const {
    const std::lock_guard lock(mutex_);
    return events_;
}

DPTK_INLINE Span::Span(std::string_view name) : Span() {
    if (is_wanted()) open(std::string(name));
}

DPTK_INLINE Span::Span(std::string_view name, std::size_t number) : Span() {
    if (is_wanted()) open(std::string(name) + ' ' + std::to_string(number));
}

DPTK_INLINE Span::~Span() {
    if (profiler_ != nullptr) profiler_->end();
    if (recorder_ != nullptr) recorder_->record({std::move(name_), Lane::program, begin_, Clock::now()});
}

DPTK_INLINE Span::Span() : recorder_(current), profiler_(profiler.load(std::memory_order_relaxed)) {}

DPTK_INLINE void Span::open(std::string name) {
    name_ = std::move(name);
    begin_ = Clock::now();
    if (profiler_ != nullptr) profiler_->begin(name_.c_str());
}

}  // namespace DPTK_NAMESPACE::trace
