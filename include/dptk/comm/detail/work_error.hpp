/// What an operation has failed with, as all WorkStates keep it.
#pragma once

#include <exception>
#include <utility>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Knows whether somebody has asked for the error. Its owner keeps others out meanwhile.
class WorkError {
  public:
    void set(std::exception_ptr error) noexcept { error_ = std::move(error); }

    /// Null where there is none.
    [[nodiscard]] std::exception_ptr see() noexcept;

    /// The same, where nobody has seen it yet.
    [[nodiscard]] std::exception_ptr unseen() const noexcept { return seen_ ? nullptr : error_; }

  private:
    std::exception_ptr error_;
    bool seen_ = false;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/work_error.ipp"
#endif
