/// Tied parameters: parameters that have one gradient, because a model registers the same memory several
/// times. Such a gradient is averaged, clipped and scaled once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/ddp/parameters.hpp"

namespace DPTK_NAMESPACE::detail {

class TiedParameters {
  public:
    TiedParameters() = default;

    /// Finds the parameters whose gradients are the same memory. Throws ArgumentError if values or gradients
    /// overlap in any other way; parameters with equal values and separate gradients are allowed. Lazy
    /// gradients without an address are not compared.
    explicit TiedParameters(const std::vector<ParameterRef>& parameters);

    /// Finds them for parameters that lie at these addresses now. Throws as the constructor does. Reuses this
    /// object's memory.
    void find(const std::vector<ParameterRef>& parameters, std::span<const ParameterAddresses> now);

    /// Returns the first of the parameters that have the gradient of parameter `i`; this is `i` if the
    /// parameter is not tied.
    [[nodiscard]] std::size_t first(std::size_t i) const noexcept { return first_[i]; }

    /// Returns whether an earlier parameter has the gradient of parameter `i`.
    [[nodiscard]] bool is_repeated(std::size_t i) const noexcept { return first_[i] != i; }

    /// Returns the first of the parameters that have the value of parameter `i`.
    [[nodiscard]] std::size_t first_of_value(std::size_t i) const noexcept { return first_value_[i]; }

    /// Returns whether the tied parameters are tied in their values as well, and no others are.
    [[nodiscard]] bool ties_values_as_gradients() const noexcept { return first_ == first_value_; }

    /// Returns the next parameter that has the gradient of parameter `i`, or the number of parameters if `i`
    /// is the last one.
    [[nodiscard]] std::size_t next(std::size_t i) const noexcept { return next_[i]; }

  private:
    /// The bytes of one value or gradient.
    struct Memory {
        Device device;
        std::uintptr_t begin;
        std::uintptr_t end;
        DType dtype;
        std::size_t parameter;
        bool is_gradient;

        [[nodiscard]] std::string text(const std::vector<ParameterRef>& parameters) const;
    };

    [[noreturn]] static void throw_overlap(const std::vector<ParameterRef>& parameters, const Memory& a,
                                           const Memory& b);

    std::vector<Memory> all_;               // workspace of find()
    std::vector<std::size_t> first_;        // by parameter
    std::vector<std::size_t> first_value_;  // by parameter
    std::vector<std::size_t> next_;         // by parameter
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/tied_parameters.ipp"
#endif
