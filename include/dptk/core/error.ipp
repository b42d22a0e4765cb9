#pragma once

#include "dptk/core/error.hpp"

#include <utility>

namespace DPTK_NAMESPACE {

DPTK_INLINE Error::Error(const std::string& message, ErrorContext context)
    : std::runtime_error(message), state_(std::make_shared<State>(State{std::move(context)})) {}

}  // namespace DPTK_NAMESPACE
