/// Tensor, a dense row-major array in host memory, for data loaders and for the inputs and outputs of
/// networks. A tensor owns its memory, which is aligned to 64 bytes. Resizing to fewer elements keeps the
/// memory, so that training steps after the first ones allocate nothing.
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
#include "dptk/core/detail/page_lock.hpp"

namespace DPTK_NAMESPACE {

/// The sizes of the dimensions, outermost first: {channels, height, width}.
using Shape = std::vector<std::size_t>;

/// Returns the number of elements of `shape`; 1 for a shape without dimensions. Throws ArgumentError if the
/// number does not fit into std::size_t.
[[nodiscard]] std::size_t element_count(std::span<const std::size_t> shape);

/// Memory for elements, aligned to 64 bytes. It grows and never shrinks. Movable, not copyable.
template <class T>
class AlignedArray {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

  public:
    static constexpr std::size_t alignment = 64;  ///< The alignment of the first element, in bytes.

    AlignedArray() = default;

    /// Makes an array of `count` zeros.
    explicit AlignedArray(std::size_t count) { reserve(count); }

    AlignedArray(AlignedArray&& other) noexcept
        : data_(std::move(other.data_)),
          capacity_(std::exchange(other.capacity_, 0)),
          page_lock_(other.page_lock_) {}

    AlignedArray& operator=(AlignedArray&& other) noexcept {
        data_ = std::move(other.data_);
        capacity_ = std::exchange(other.capacity_, 0);
        page_lock_ = other.page_lock_;
        return *this;
    }

    /// Makes room for `count` elements, and returns their address. If the memory must grow, the previous
    /// contents are lost and the elements are zero.
    T* reserve(std::size_t count) {
        if (count <= capacity_) return data_.get();
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
        data_.reset();
        capacity_ = 0;
        const std::size_t bytes = count * sizeof(T);
        void* const memory = page_lock_.calls != nullptr
                                 ? page_lock_.calls->allocate(bytes, page_lock_.device)
                                 : ::operator new(bytes, std::align_val_t{alignment});
        data_ = std::unique_ptr<T, Free>(static_cast<T*>(memory), Free{page_lock_});
        std::uninitialized_fill_n(data_.get(), count, T{});
        capacity_ = count;
        return data_.get();
    }

    /// Makes the memory page-locked, now and when it grows. The elements are zero afterwards.
    void page_lock(const detail::PageLock& how) {
        page_lock_ = how;
        reserve(std::exchange(capacity_, 0));
    }

    /// Returns the address of the first element, which is valid until reserve() must grow; null if no
    /// memory was ever reserved.
    [[nodiscard]] T* data() const noexcept { return data_.get(); }

    /// Returns the number of elements that the memory has room for.
    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  private:
    struct Free {
        void operator()(T* data) const noexcept {
            if (page_lock.calls != nullptr) return page_lock.calls->free(data, page_lock.device);
            ::operator delete(data, std::align_val_t{alignment});
        }
        detail::PageLock page_lock = {};
    };

    std::unique_ptr<T, Free> data_;
    std::size_t capacity_ = 0;
    detail::PageLock page_lock_;
};

/// A row-major array of `T`; the last dimension is contiguous. Movable, not copyable.
template <class T>
class Tensor {
  public:
    /// Makes a tensor without dimensions and elements.
    Tensor() = default;

    /// Makes a tensor of zeros with the shape `shape`.
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

    /// Changes the shape to `shape`. The elements are unspecified afterwards. Memory is allocated, and
    /// pointers into the tensor change, only if the tensor never had room for as many elements.
    void resize(std::span<const std::size_t> shape) {
        shape_.assign(shape.begin(), shape.end());
        make_room();
    }

    /// Changes the shape to [n, ...sample], like the overload above.
    void resize(std::size_t n, std::span<const std::size_t> sample) {
        shape_.assign(1, n);
        shape_.insert(shape_.end(), sample.begin(), sample.end());
        make_room();
    }

    /// Returns the size of each dimension, outermost first.
    [[nodiscard]] const Shape& shape() const noexcept { return shape_; }

    /// Returns the number of elements.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// Returns the address of the first element, which is valid until resize() needs more memory than ever
    /// before.
    [[nodiscard]] T* data() noexcept { return memory_.data(); }

    /// Returns the address of the first element, for reading.
    [[nodiscard]] const T* data() const noexcept { return memory_.data(); }

    /// Returns a view of all elements, in row-major order, valid until the next resize().
    [[nodiscard]] std::span<T> values() noexcept { return {data(), size_}; }

    /// Returns a read-only view of all elements.
    [[nodiscard]] std::span<const T> values() const noexcept { return {data(), size_}; }

    /// Returns element `index` in row-major order. `index` must be less than size(); this is not checked.
    [[nodiscard]] T& operator[](std::size_t index) noexcept { return data()[index]; }

    /// Returns element `index` for reading. `index` must be less than size(); this is not checked.
    [[nodiscard]] const T& operator[](std::size_t index) const noexcept { return data()[index]; }

    /// Makes the memory page-locked, now and when it grows, so that copies from it to a GPU do not block. The
    /// elements are unspecified afterwards.
    void page_lock(const detail::PageLock& how) { memory_.page_lock(how); }

    /// Sets all elements to `value`.
    void fill(T value) { std::fill_n(data(), size_, value); }

  private:
    void make_room() {
        size_ = 0;  // stays 0 if a call below throws
        const std::size_t count = element_count(shape_);
        memory_.reserve(count);
        size_ = count;
    }

    std::size_t size_ = 0;
    AlignedArray<T> memory_;
    Shape shape_;
};

namespace nn {
using dptk::Shape;
using dptk::Tensor;
}  // namespace nn

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/error.hpp"
#include "dptk/core/tensor.ipp"
#endif
