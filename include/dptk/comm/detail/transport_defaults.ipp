#pragma once

#include "dptk/comm/detail/transport_defaults.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::shared_ptr<void> allocate_aligned(std::size_t bytes) {
    constexpr std::size_t alignment = 64;
    constexpr std::size_t address_space = std::size_t{1} << 48;
    if (bytes > address_space) throw std::bad_alloc();
    const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, rounded);
    if (memory == nullptr) throw std::bad_alloc();
    std::memset(memory, 0, rounded);
    return {memory, [](void* pointer) { std::free(pointer); }};
}

}  // namespace DPTK_NAMESPACE::detail
