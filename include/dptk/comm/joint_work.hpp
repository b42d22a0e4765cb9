/// One Work for several operations.
#pragma once

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "dptk/comm/work.hpp"

namespace dptk {

namespace detail {

/// Each part has its own place in its communicator, which completes it and tells its error where nobody asks.
class JointWork final : public WorkState {
  public:
    explicit JointWork(std::vector<Work> parts) : parts_(std::move(parts)) {}

    bool wait(std::chrono::nanoseconds timeout) override {
        using Clock = std::chrono::steady_clock;
        constexpr auto for_ever = std::chrono::nanoseconds::max();
        const auto begin = Clock::now();
        return std::ranges::all_of(parts_, [&](Work& part) {
            if (timeout == for_ever) return has_ended(part, for_ever);
            const std::chrono::nanoseconds left = timeout - (Clock::now() - begin);
            return has_ended(part, std::max(left, std::chrono::nanoseconds(0)));
        });
    }

    std::exception_ptr error() override {
        for (Work& part : parts_) {
            if (const std::exception_ptr error = part.error()) return error;
        }
        return nullptr;
    }

    std::exception_ptr unseen_error() override { return nullptr; }

  private:
    static bool has_ended(Work& part, std::chrono::nanoseconds timeout) {
        try {
            return part.wait(timeout);
        } catch (...) {  // error() tells
            return true;
        }
    }

    std::vector<Work> parts_;
};

}  // namespace detail

/// A Work that is done when all of `parts` are. Its error is the first part's that has one.
[[nodiscard]] inline Work join_works(std::vector<Work> parts) {
    if (parts.empty()) return {};
    if (parts.size() == 1) return parts.front();
    return Work(std::make_shared<detail::JointWork>(std::move(parts)));
}

}  // namespace dptk
