/// Tensor: a dense row-major array in host memory, as data loaders fill it and as networks take and return
/// it. It owns its memory, aligned to 64 bytes, and keeps it when it is resized to something smaller, so that
/// a warmed-up training step allocates nothing here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::nn {

/// Sizes of the dimensions, outermost first: {channels, height, width}.
using Shape = std::vector<std::size_t>;

/// The number of elements of `shape`; 1 for a shape without dimensions.
/// \throws ArgumentError where it does not fit into std::size_t
[[nodiscard]] std::size_t element_count(std::span<const std::size_t> shape);

/// Memory for elements, aligned to 64 bytes; it grows and never shrinks. Owns, moves, and is not copied.
template <class T>
class AlignedArray {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

  public:
    static constexpr std::size_t alignment = 64;  ///< In bytes, of the first element.

    AlignedArray() = default;

    /// `count` zeros.
    explicit AlignedArray(std::size_t count) { reserve(count); }

    AlignedArray(AlignedArray&& other) noexcept
        : data_(std::move(other.data_)), capacity_(std::exchange(other.capacity_, 0)) {}

    AlignedArray& operator=(AlignedArray&& other) noexcept {
        data_ = std::move(other.data_);
        capacity_ = std::exchange(other.capacity_, 0);
        return *this;
    }

    /// Makes room for `count` elements, and returns where they are. Where it has to grow, what it held is
    /// lost and the elements are zero.
    T* reserve(std::size_t count) {
        if (count <= capacity_) return data_.get();
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
        data_.reset();
        capacity_ = 0;
        data_.reset(static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t{alignment})));
        std::uninitialized_fill_n(data_.get(), count, T{});
        capacity_ = count;
        return data_.get();
    }

    /// The address of the first element, until reserve() has to grow; null where there never was room.
    [[nodiscard]] T* data() const noexcept { return data_.get(); }

    /// The number of elements that there is room for.
    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  private:
    struct Free {
        void operator()(T* data) const noexcept { ::operator delete(data, std::align_val_t{alignment}); }
    };

    std::unique_ptr<T, Free> data_;
    std::size_t capacity_ = 0;
};

/// A row-major array of `T`; the last dimension is contiguous. Owns, moves, and is not copied.
template <class T>
class Tensor {
  public:
    /// No dimensions and no elements.
    Tensor() = default;

    /// Zeros of the shape `shape`.
    explicit Tensor(Shape shape)
        : size_(element_count(shape)), memory_(element_count(shape)), shape_(std::move(shape)) {}

    Tensor(Tensor&& other) noexcept
        : size_(std::exchange(other.size_, 0)),
          memory_(std::move(other.memory_)),
          shape_(std::exchange(other.shape_, {})) {}

    Tensor& operator=(Tensor&& other) noexcept {
        size_ = std::exchange(other.size_, 0);
        memory_ = std::move(other.memory_);
        shape_ = std::exchange(other.shape_, {});
        return *this;
    }

    /// Takes the shape `shape`. The elements are unspecified afterwards; memory is allocated only where there
    /// was never room for as many, so pointers into the tensor may change.
    void resize(std::span<const std::size_t> shape) {
        shape_.assign(shape.begin(), shape.end());
        make_room();
    }

    /// The same for the shape [n, ...sample].
    void resize(std::size_t n, std::span<const std::size_t> sample) {
        shape_.assign(1, n);
        shape_.insert(shape_.end(), sample.begin(), sample.end());
        make_room();
    }

    /// The extent of each dimension, the outermost first.
    [[nodiscard]] const Shape& shape() const noexcept { return shape_; }

    /// The number of elements.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// The address of the first element, until resize() needs more room than there ever was.
    [[nodiscard]] T* data() noexcept { return memory_.data(); }

    /// The same, for reading.
    [[nodiscard]] const T* data() const noexcept { return memory_.data(); }

    /// A view of all elements, row by row: valid until the next resize().
    [[nodiscard]] std::span<T> values() noexcept { return {data(), size_}; }

    /// The same, for reading.
    [[nodiscard]] std::span<const T> values() const noexcept { return {data(), size_}; }

    /// Element `index` in row-major order, which must be below size(): nothing checks it.
    [[nodiscard]] T& operator[](std::size_t index) noexcept { return data()[index]; }

    /// The same, for reading.
    [[nodiscard]] const T& operator[](std::size_t index) const noexcept { return data()[index]; }

    /// Sets all elements to `value`.
    void fill(T value) { std::fill_n(data(), size_, value); }

  private:
    void make_room() {
        size_ = 0;  // should one of these throw
        const std::size_t count = element_count(shape_);
        memory_.reserve(count);
        size_ = count;
    }

    std::size_t size_ = 0;
    AlignedArray<T> memory_;
    Shape shape_;
};

}  // namespace DPTK_NAMESPACE::nn

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/error.hpp"
#include "dptk/nn/tensor.ipp"
#endif
