#pragma once

#include "dptk/ddp/comm_hook.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE FunctionHook::FunctionHook(Function function) : function_(std::move(function)) {}

}  // namespace DPTK_NAMESPACE::detail
