#pragma once

#include "dptk/comm/detail/joint_work.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>

namespace DPTK_NAMESPACE::detail {

class JointWork final : public WorkState {
  public:
    explicit JointWork(const std::vector<Work>& parts) {
        for (const Work& part : parts) {
            if (part.state()) parts_.push_back(part.state());
        }
    }

    bool wait(std::chrono::nanoseconds timeout) override {
        using Clock = std::chrono::steady_clock;
        constexpr auto for_ever = std::chrono::nanoseconds::max();
        const auto begin = Clock::now();
        return std::ranges::all_of(parts_, [&](const auto& part) {
            if (timeout == for_ever) return part->wait(for_ever);
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

DPTK_INLINE Work join_works(const std::vector<Work>& parts) {
    if (parts.empty()) return {};
    if (parts.size() == 1) return parts.front();
    return Work(std::make_shared<JointWork>(parts));
}

}  // namespace DPTK_NAMESPACE::detail
