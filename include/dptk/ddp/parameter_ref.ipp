#pragma once

#include "dptk/ddp/parameter_ref.hpp"

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

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
