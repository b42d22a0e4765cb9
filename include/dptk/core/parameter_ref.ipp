#pragma once

#include "dptk/core/parameter_ref.hpp"

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE void ParameterRef::check_access(const Buffer& elements, DType requested,
                                            std::string_view what) const {
    const auto fail = [&](std::string_view found) {
        throw ArgumentError(detail::text("the ", what, " of parameter ", name, " is ", found, ": expected ",
                                         dtype_name(requested), " in host memory"));
    };
    if (elements.dtype != requested) fail(detail::text("of ", dtype_name(elements.dtype)));
    if (elements.on_device()) fail(detail::text("on ", device_name(elements.device)));
    if (elements.data == nullptr && count != 0) fail("not allocated yet");
}

}  // namespace DPTK_NAMESPACE

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void require_host_memory(std::span<const ParameterRef> parameters, std::string_view who) {
    for (const ParameterRef& parameter : parameters) {
        if (parameter.device.type != DeviceType::cpu)
            throw ArgumentError(text(who, " supports host memory only, but parameter ", parameter.name,
                                     " is on ", device_name(parameter.device)));
    }
}

DPTK_INLINE void require_lasting_gradients(std::span<const ParameterRef> parameters, std::string_view who) {
    for (const ParameterRef& parameter : parameters) {
        if (parameter.lazy_gradient)
            throw ArgumentError(
                text(who, " does not support lazy gradients, but parameter ", parameter.name, " has one"));
    }
}

}  // namespace DPTK_NAMESPACE::detail
