#pragma once

#include "dptk/ddp/array_traits.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE Dimensions::Dimensions(std::initializer_list<std::size_t> sizes) {
    for (const std::size_t size : sizes) push_back(size);
}

DPTK_INLINE void Dimensions::push_back(std::size_t size) {
    if (count_ == sizes_.size())
        throw ArgumentError(detail::text("an array has more than ", sizes_.size(),
                                         " dimensions, the most that dptk supports"));
    sizes_[count_++] = size;
}

DPTK_INLINE bool ArrayRef::is_contiguous() const noexcept {
    return run == 0 || run >= elements.count || run == stride;
}

DPTK_INLINE Buffer ArrayRef::piece(std::size_t first, std::size_t length) const noexcept {
    const std::size_t place = is_contiguous() ? first : first / run * stride + first % run;
    return elements.slice(place, length);
}

}  // namespace DPTK_NAMESPACE

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::string layout_text(std::uint64_t layout) {
    if (layout == 0) return "row-major";
    return layout == column_major ? std::string("column-major") : text("in layout ", layout);
}

}  // namespace DPTK_NAMESPACE::detail
