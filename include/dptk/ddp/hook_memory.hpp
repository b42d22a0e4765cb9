/// What a communication hook needs beside a bucket: memory where the bucket is, kept from step to step.
#pragma once

#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/device_lane.hpp"
#include "dptk/ddp/comm_hook.hpp"

namespace dptk::detail {

/// Zeros, where the bucket is.
[[nodiscard]] inline OwnedBuffer allocate(const HookBucket& bucket, std::size_t count, DType dtype) {
    if (bucket.lane) return allocate(*bucket.lane, count, dtype);
    const auto scratch = std::make_shared<algorithms::Scratch>(Buffer{nullptr, count, dtype, {}});
    return {scratch->buffer(), scratch};
}

/// A block for each bucket.
class HookMemory {
  public:
    /// Where nobody has asked for one of another size or type, the block has what was left in it.
    [[nodiscard]] Buffer get(const HookBucket& bucket, std::size_t count, DType dtype) {
        if (blocks_.size() <= bucket.index) blocks_.resize(bucket.index + 1);
        OwnedBuffer& block = blocks_[bucket.index];
        const Buffer& has = block.elements;
        if (!block.memory || has.count != count || has.dtype != dtype || has.device != bucket.elements.device)
            block = allocate(bucket, count, dtype);
        return block.elements;
    }

  private:
    std::vector<OwnedBuffer> blocks_;
};

/// Floats that a hook remembers of each parameter.
class HookFloats {
  public:
    using State = std::map<std::size_t, std::vector<float>>;

    /// Those of a parameter; zeros where there are none, or not as many.
    [[nodiscard]] Buffer get(const HookBucket& bucket, std::size_t parameter, std::size_t count) {
        Place& place = places_[parameter];
        const Buffer& has = place.memory.elements;
        if (place.memory.memory && has.count == count && has.device == bucket.elements.device) {
            place.lane = bucket.lane;
            return has;
        }
        if (place.memory.memory) read(place, loaded_[parameter]);  // it has gone elsewhere
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

    /// Whether there are any, so many.
    [[nodiscard]] bool has(std::size_t parameter, std::size_t count) const {
        if (const auto found = places_.find(parameter); found != places_.end())
            return found->second.memory.elements.count == count;
        const auto found = loaded_.find(parameter);
        return found != loaded_.end() && found->second.size() == count;
    }

    /// Of all parameters. Blocks where some are in device memory.
    [[nodiscard]] State state() const {
        State state = loaded_;
        for (const auto& [parameter, place] : places_) read(place, state[parameter]);
        return state;
    }

    void load(State state) {
        places_.clear();
        loaded_ = std::move(state);
    }

  private:
    struct Place {
        std::shared_ptr<DeviceLane> lane;
        OwnedBuffer memory;
    };

    static void read(const Place& place, std::vector<float>& to) {
        const Buffer& floats = place.memory.elements;
        to.resize(floats.count);
        if (!place.lane) {
            std::memcpy(to.data(), floats.data, floats.bytes());
            return;
        }
        place.lane->follow_program();  // where graphs were launched
        place.lane->read(floats, to.data());
    }

    std::map<std::size_t, Place> places_;
    State loaded_;  // of parameters that have no place yet
};

}  // namespace dptk::detail
