#pragma once

#include "dptk/ddp/detail/model_buffers.hpp"

#include <cstring>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/ddp/detail/model_parameters.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE ModelBuffers::ModelBuffers(const DistributedDataParallelOptions& options) {
    if (!options.buffers || !options.broadcast_buffers) return;
    source_ = options.buffers;
    buffers_ = source_->collect();
    check_memory();
}

DPTK_INLINE bool ModelBuffers::are_on_devices() const noexcept {
    return !buffers_.empty() && buffers_.front().on_device();
}

DPTK_INLINE void ModelBuffers::read() {
    if (!source_) return;
    source_->read(read_now_);
    const auto is_same = [](const Buffer& a, const Buffer& b) {
        return same_shape(a, b) && a.device == b.device;
    };
    if (!detail::equal(read_now_, buffers_, is_same))
        throw ArgumentError(
            "the model's buffers have changed since construction: expected the same number, sizes, types and "
            "devices");
    buffers_.swap(read_now_);
}

DPTK_INLINE void ModelBuffers::broadcast(ProcessGroup& group, int root, StreamRef stream) const {
    if (are_on_devices()) {
        for (const Buffer& buffer : buffers_)
            ModelParameters::run(
                group,
                {.verb = Verb::broadcast, .input = buffer, .output = buffer, .root = root, .stream = stream});
        return;
    }
    if (buffers_.empty()) return;
    std::size_t bytes = 0;
    for (const Buffer& buffer : buffers_) bytes += buffer.bytes();
    packed_.resize(bytes);
    std::byte* place = packed_.data();
    for (const Buffer& buffer : buffers_) {
        if (buffer.bytes() != 0) std::memcpy(place, buffer.data, buffer.bytes());
        place += buffer.bytes();
    }
    group.broadcast(packed_, root);
    place = packed_.data();
    for (const Buffer& buffer : buffers_) {
        if (buffer.bytes() != 0) std::memcpy(buffer.data, place, buffer.bytes());
        place += buffer.bytes();
    }
}

DPTK_INLINE void ModelBuffers::check_memory() const {
    for (const Buffer& buffer : buffers_) {
        if (buffer.on_device() != are_on_devices())
            throw ArgumentError("buffers must be all in host memory or all in device memory");
    }
}

DPTK_INLINE std::vector<std::byte> ModelBuffers::copy() {
    if (are_on_devices())
        throw ArgumentError("an elastic job supports only buffers in host memory, but they are on devices");
    std::vector<std::byte> out;
    if (!has_any()) return out;
    read();
    for (const Buffer& buffer : buffers_) {
        const auto* const begin = static_cast<const std::byte*>(buffer.data);
        out.insert(out.end(), begin, begin + buffer.bytes());
    }
    return out;
}

DPTK_INLINE void ModelBuffers::write(std::span<const std::byte> elements) {
    if (elements.empty()) return;
    read();
    for (const Buffer& buffer : buffers_) {
        std::memcpy(buffer.data, elements.data(), buffer.bytes());
        elements = elements.subspan(buffer.bytes());
    }
}

}  // namespace DPTK_NAMESPACE::detail
