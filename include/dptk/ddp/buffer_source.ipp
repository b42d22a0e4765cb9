#pragma once

#include "dptk/ddp/buffer_source.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE BufferSource::BufferSource(std::function<std::vector<Buffer>()> collect)
    : read_([collect = std::move(collect)](std::vector<Buffer>& buffers) { buffers = collect(); }) {}

DPTK_INLINE BufferSource BufferSource::of_function(std::function<void(std::vector<Buffer>& buffers)> read) {
    BufferSource source([] { return std::vector<Buffer>(); });
    source.read_ = std::move(read);
    return source;
}

DPTK_INLINE std::vector<Buffer> BufferSource::collect() const {
    std::vector<Buffer> buffers;
    read(buffers);
    return buffers;
}

}  // namespace DPTK_NAMESPACE

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE bool same_shape(const Buffer& a, const Buffer& b) noexcept {
    return a.count == b.count && a.dtype == b.dtype && a.element_size() == b.element_size();
}

}  // namespace DPTK_NAMESPACE::detail
