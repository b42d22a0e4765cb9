/// Multi-tensor kernel launches: a table of tensors is passed as a kernel argument, and each block
/// processes one piece of a tensor. For .cu files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::cuda::detail {

/// The number of elements in the piece that one block processes.
inline constexpr std::size_t piece_elements = 4096;

/// A table of as many tensors as fit into the arguments of one launch, which are limited to 4 KiB.
template <class Tensor>
class TensorTable {
  public:
    static constexpr unsigned capacity = static_cast<unsigned>(3900 / (sizeof(Tensor) + sizeof(unsigned)));

    /// Adds a tensor. Returns false if the table is full.
    bool add(const Tensor& tensor) {
        if (size_ == capacity) return false;
        tensors_[size_] = tensor;
        blocks_ += static_cast<unsigned>((tensor.count + piece_elements - 1) / piece_elements);
        end_[size_++] = blocks_;
        return true;
    }

    [[nodiscard]] unsigned blocks() const { return blocks_; }

#ifdef __CUDACC__
    struct Piece {
        const Tensor& tensor;
        std::size_t begin;
        std::size_t end;
    };

    /// Returns the piece that belongs to the calling block.
    [[nodiscard]] __device__ Piece own_piece() const {
        unsigned first = 0;
        unsigned last = size_ - 1;
        while (first < last) {
            const unsigned middle = (first + last) / 2;
            if (blockIdx.x < end_[middle]) {
                last = middle;
            } else {
                first = middle + 1;
            }
        }
        const unsigned before = first == 0 ? 0 : end_[first - 1];
        const std::size_t begin = static_cast<std::size_t>(blockIdx.x - before) * piece_elements;
        const std::size_t count = tensors_[first].count;
        return {tensors_[first], begin, begin + piece_elements < count ? begin + piece_elements : count};
    }
#endif

  private:
    Tensor tensors_[capacity] = {};
    unsigned end_[capacity] = {};  // for each tensor, the end of its blocks
    unsigned size_ = 0;
    unsigned blocks_ = 0;
};

/// Calls launch(table) for all tensors that have elements, with as many tensors in each table as fit.
template <class Tensor, class Launch>
void for_each_tensor(std::span<const Tensor> tensors, Launch&& launch) {
    TensorTable<Tensor> table;
    for (const Tensor& tensor : tensors) {
        if (tensor.count == 0) continue;
        if (table.add(tensor)) continue;
        launch(table);
        table = {};
        table.add(tensor);
    }
    if (table.blocks() > 0) launch(table);
}

}  // namespace DPTK_NAMESPACE::cuda::detail
