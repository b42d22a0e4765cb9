#pragma once

#include "dptk/core/detail/errno_text.hpp"

#include <cerrno>
#include <system_error>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::string errno_text(int error) {
    const std::string message = std::system_category().message(error);
    return error == EMFILE ? message + ": raise the limit (ulimit -n)" : message;
}

}  // namespace DPTK_NAMESPACE::detail
