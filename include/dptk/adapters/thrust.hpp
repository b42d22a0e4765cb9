/// Thrust device vectors as parameters and gradients. thrust::device_vector<float> is stored by reference,
/// with the device of its memory. Both nvcc and a C++ compiler that finds Thrust can compile this header.
#pragma once

#if !__has_include(<thrust/device_ptr.h>)
#error "dptk: <dptk/adapters/thrust.hpp> needs Thrust, of the CUDA Toolkit, among the include folders"
#endif

#include <thrust/device_ptr.h>

#include <concepts>
#include <cstddef>
#include <type_traits>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/device.hpp"
#include "dptk/ddp/parameter_source.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// device_vector, and any other class with the same data() and size().
template <class V>
concept ThrustVector = requires(V& vector) {
    { vector.size() } -> std::convertible_to<std::size_t>;
    requires std::same_as<decltype(vector.data()), thrust::device_ptr<typename V::value_type>>;
    requires is_floating(dtype_of<typename V::value_type>);
};

}  // namespace detail

/// A device vector of floating-point numbers, as one parameter.
template <detail::ThrustVector V>
struct ArrayTraits<V> {
    using Element = typename V::value_type;  ///< The vector's value_type.

    /// Returns the elements and their device; the current device if there are no elements.
    [[nodiscard]] static ArrayRef array(V& vector) {
        Element* data = thrust::raw_pointer_cast(vector.data());
        ArrayRef out;
        out.shape = {vector.size()};
        out.elements = {data, vector.size(), dtype_of<Element>, {DeviceType::cuda, cuda::current_device()}};
        if (vector.size() > 0) out.elements.device = cuda::device_of(data);
        return out;
    }
};

}  // namespace DPTK_NAMESPACE
