#pragma once

#include "dptk/comm/detail/joint_work.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <utility>

#include "dptk/control/process/awake_clock.hpp"
#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE::detail {

class JointWork final : public WorkState {
  public:
    explicit JointWork(std::vector<std::shared_ptr<WorkState>> parts) : parts_(std::move(parts)) {}

    bool wait(std::chrono::nanoseconds timeout) override {
        using Clock = AwakeClock;
        constexpr auto for_ever = std::chrono::nanoseconds::max();
        if (timeout == for_ever)
            return detail::all_of(parts_, [&](const auto& part) { return part->wait(for_ever); });
        const auto begin = Clock::now();
        return detail::all_of(parts_, [&](const auto& part) {
            const std::chrono::nanoseconds left = timeout - (Clock::now() - begin);
            return part->wait(std::max(left, std::chrono::nanoseconds(0)));
        });
    }

    void order_before(StreamRef stream) override {
        for (const auto& part : parts_) part->order_before(stream);
    }

    std::exception_ptr error() override {
        std::exception_ptr first;
        for (const auto& part : parts_) {
            const std::exception_ptr error = part->error();
            if (!first) first = error;
        }
        return first;
    }

    std::exception_ptr unreported_error() override {
        for (const auto& part : parts_) {
            if (std::exception_ptr error = part->unreported_error()) return error;
        }
        return nullptr;
    }

  private:
    std::vector<std::shared_ptr<WorkState>> parts_;
};

DPTK_INLINE Work join_works(std::vector<Work> parts, std::shared_ptr<ControlPlane> control) {
    if (parts.empty()) return {};
    if (parts.size() == 1) return std::move(parts.front());
    std::vector<std::shared_ptr<WorkState>> states;
    for (Work& part : parts) {
        if (part.state()) states.push_back(part.state());
        part.detach();
    }
    return Work(join_works(std::move(states)), std::move(control));
}

DPTK_INLINE std::shared_ptr<WorkState> join_works(std::vector<std::shared_ptr<WorkState>> parts) {
    return std::make_shared<JointWork>(std::move(parts));
}

}  // namespace DPTK_NAMESPACE::detail
