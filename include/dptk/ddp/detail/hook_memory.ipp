#pragma once

#include "dptk/ddp/detail/hook_memory.hpp"

#include <cstring>
#include <utility>

#include "dptk/comm/algorithms/exchange.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE OwnedBuffer allocate(const HookBucket& bucket, std::size_t count, DType dtype) {
    if (bucket.lane) return allocate(*bucket.lane, count, dtype);
    const auto scratch = std::make_shared<algorithms::Scratch>(Buffer{nullptr, count, dtype, {}});
    std::memset(scratch->buffer().data, 0, scratch->buffer().bytes());
    return {scratch->buffer(), scratch};
}

DPTK_INLINE Buffer HookMemory::get(const HookBucket& bucket, std::size_t count, DType dtype) {
    if (blocks_.size() <= bucket.index) blocks_.resize(bucket.index + 1);
    OwnedBuffer& block = blocks_[bucket.index];
    const Buffer& has = block.elements;
    if (!block.memory || has.count != count || has.dtype != dtype || has.device != bucket.elements.device)
        block = allocate(bucket, count, dtype);
    return block.elements;
}

DPTK_INLINE Buffer HookFloats::get(const HookBucket& bucket, std::size_t parameter, std::size_t count) {
    Place& place = places_[parameter];
    const Buffer& has = place.memory.elements;
    if (place.memory.memory && has.count == count && has.device == bucket.elements.device) {
        place.lane = bucket.lane;
        return has;
    }
    // Keeps the floats if the bucket has moved to another device.
    if (place.memory.memory) read(place, loaded_[parameter]);
    place = {bucket.lane, allocate(bucket, count, DType::f32)};
    const auto loaded = loaded_.find(parameter);
    if (loaded == loaded_.end() || loaded->second.size() != count) return place.memory.elements;
    const Buffer& floats = place.memory.elements;
    if (bucket.lane) {
        bucket.lane->write_all(floats, loaded->second.data());
    } else {
        std::memcpy(floats.data, loaded->second.data(), floats.bytes());
    }
    return floats;
}

DPTK_INLINE bool HookFloats::has(std::size_t parameter, std::size_t count) const {
    if (const auto found = places_.find(parameter); found != places_.end())
        return found->second.memory.elements.count == count;
    const auto found = loaded_.find(parameter);
    return found != loaded_.end() && found->second.size() == count;
}

DPTK_INLINE HookFloats::State HookFloats::state() const {
    State state = loaded_;
    for (const auto& [parameter, place] : places_) read(place, state[parameter]);
    return state;
}

DPTK_INLINE void HookFloats::load(State state) {
    places_.clear();
    loaded_ = std::move(state);
}

DPTK_INLINE void HookFloats::read(const Place& place, std::vector<float>& to) {
    const Buffer& floats = place.memory.elements;
    to.resize(floats.count);
    if (!place.lane) {
        std::memcpy(to.data(), floats.data, floats.bytes());
        return;
    }
    place.lane->wait_for_user_stream();  // CUDA graphs change the floats on this stream
    place.lane->read(floats, to.data());
}

}  // namespace DPTK_NAMESPACE::detail
