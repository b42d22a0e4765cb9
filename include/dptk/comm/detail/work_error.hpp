/// The error of an operation, as WorkStates store it.
#pragma once

#include <exception>
#include <utility>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Stores an error, and whether the caller has read it. Not thread-safe: the owner serializes access.
class WorkError {
  public:
    void set(std::exception_ptr error) noexcept { error_ = std::move(error); }

    /// Returns the error, or null, and marks it as seen.
    [[nodiscard]] std::exception_ptr see() noexcept;

    /// Returns the error if it has not been seen yet, otherwise null.
    [[nodiscard]] std::exception_ptr unseen() const noexcept { return seen_ ? nullptr : error_; }

  private:
    std::exception_ptr error_;
    bool seen_ = false;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/work_error.ipp"
#endif
