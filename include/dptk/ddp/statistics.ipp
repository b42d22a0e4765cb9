#pragma once

#include "dptk/ddp/statistics.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE StepTimes& StepTimes::operator+=(const StepTimes& other) noexcept {
    compute += other.compute;
    communication += other.communication;
    overlapped += other.overlapped;
    return *this;
}

}  // namespace DPTK_NAMESPACE
