/// Thrust's device vectors as parameters and gradients: thrust::device_vector<float> is kept by reference, on
/// the device on which its memory lies. nvcc compiles it, and so does a C++ compiler that finds Thrust.
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

/// device_vector, and whatever else has its data() and size().
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

    /// Where the elements lie, and on which device: the current one where there are none.
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
