/// Changes to errors that only dptk makes.
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <string>

#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

struct ErrorAccess {
    /// Marks the error as one that all ranks throw.
    static void mark_agreed(Error& error) noexcept { error.state_->is_agreed = true; }

    /// Returns an object that lives as long as this error and its copies.
    [[nodiscard]] static std::shared_ptr<const void> lifetime(const Error& error) noexcept {
        return error.state_;
    }

    /// Sets the rank of an error that has none.
    static void add_rank(const Error& error, int rank) noexcept {
        if (!error.state_->context.rank) error.state_->context.rank = rank;
    }

    /// Sets the step of an error that has none.
    static void add_step(const Error& error, std::size_t step) noexcept {
        if (!error.state_->context.step) error.state_->context.step = step;
    }
};

/// Returns the parameter that an exception is about; empty if it is about none.
[[nodiscard]] inline std::string parameter_of(const std::exception& exception) {
    const auto* const error = dynamic_cast<const Error*>(&exception);
    return error != nullptr ? error->parameter() : std::string();
}

}  // namespace DPTK_NAMESPACE::detail
