/// TrainingState, all that a run needs to continue bit for bit: what checkpoints contain.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/tensor.hpp"

namespace DPTK_NAMESPACE {

/// A tensor with a name, which owns its elements: row-major, in host memory.
struct StateTensor {
    std::string name;              ///< The name, unique within its list.
    Shape shape;                   ///< The size of each dimension, outermost first.
    DType dtype = DType::f32;      ///< The type of the elements.
    std::vector<std::byte> bytes;  ///< The elements.

    /// Copies `values`.
    template <class T>
    [[nodiscard]] static StateTensor of(std::string name, Shape shape, std::span<const T> values) {
        StateTensor tensor{std::move(name), std::move(shape), dtype_of<T>, {}};
        tensor.bytes.resize(values.size_bytes());
        std::memcpy(tensor.bytes.data(), values.data(), values.size_bytes());
        return tensor;
    }

    /// Returns the elements. Throws ArgumentError if they have another type.
    template <class T>
    [[nodiscard]] std::vector<T> values() const {
        if (dtype != dtype_of<T>)
            throw ArgumentError(detail::text("checkpoint: tensor ", name, " has the type ", dtype_name(dtype),
                                             ", expected ", dtype_name(dtype_of<T>)));
        std::vector<T> copy(bytes.size() / sizeof(T));
        std::memcpy(copy.data(), bytes.data(), copy.size() * sizeof(T));
        return copy;
    }
};

/// Tensors that are too large to be in one rank's memory together, such as the state of a sharded optimizer.
struct StreamedTensors {
    std::vector<StateTensor> described = {};  ///< Names, shapes and types, without elements.
    /// Returns one of these tensors with its elements. Collective in a state that a run has returned, which
    /// only rank 0 gets the elements of, and in one that Checkpoint has read, which has them on all ranks.
    std::function<StateTensor(std::size_t i)> fetch = {};
    bool is_on_all_ranks = false;  ///< Whether all ranks get the elements, as TrainingRun::restore() needs.
};

/// The state of a training run. Trainer and callbacks each add what is theirs, under names of their own.
struct TrainingState {
    std::vector<StateTensor> model;             ///< Parameters and buffers, with PyTorch's names.
    std::vector<StateTensor> training;          ///< State of the optimizer and of callbacks.
    StreamedTensors sharded;                    ///< State of a sharded optimizer.
    std::map<std::string, std::string> values;  ///< Numbers and texts.

    /// Returns the tensor of this name in `tensors`, or null.
    [[nodiscard]] static const StateTensor* find(const std::vector<StateTensor>& tensors,
                                                 std::string_view name) noexcept {
        for (const StateTensor& tensor : tensors)
            if (tensor.name == name) return &tensor;
        return nullptr;
    }

    /// Returns the tensor of this name in `tensors`. Throws ArgumentError if there is none.
    [[nodiscard]] static const StateTensor& required(const std::vector<StateTensor>& tensors,
                                                     const std::string& name) {
        if (const StateTensor* found = find(tensors, name)) return *found;
        throw ArgumentError(detail::text("checkpoint: there is no tensor ", name));
    }

    /// Returns a value. Throws ArgumentError if there is none of this name.
    [[nodiscard]] const std::string& value(const std::string& name) const {
        const auto found = values.find(name);
        if (found == values.end()) throw ArgumentError(detail::text("checkpoint: there is no value ", name));
        return found->second;
    }

    /// Returns a value that is an integer. Throws ArgumentError if there is none of this name.
    [[nodiscard]] std::int64_t number(const std::string& name) const {
        const std::string& digits = value(name);
        std::int64_t result = 0;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), result);
        if (error != std::errc() || end != digits.data() + digits.size())
            throw ArgumentError(detail::text("checkpoint: value ", name, " is not a number: ", digits));
        return result;
    }
};

}  // namespace DPTK_NAMESPACE
