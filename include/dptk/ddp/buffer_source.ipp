#pragma once

#include "dptk/ddp/buffer_source.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE BufferSource::BufferSource(std::function<std::vector<Buffer>()> collect)
    : collect_(std::move(collect)) {}

}  // namespace DPTK_NAMESPACE

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE bool same_shape(const Buffer& a, const Buffer& b) noexcept {
    return a.count == b.count && a.dtype == b.dtype && a.element_size() == b.element_size();
}

}  // namespace DPTK_NAMESPACE::detail
