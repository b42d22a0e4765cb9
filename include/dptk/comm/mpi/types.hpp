/// The library's element types, operations and messages as MPI's.
#pragma once

#include <cstddef>

#include "dptk/comm/mpi/environment.hpp"
#include "dptk/comm/reduce_op.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

[[nodiscard]] MPI_Datatype mpi_datatype(DType dtype);

/// Of a buffer's mpi_datatype, how many it holds.
[[nodiscard]] std::size_t mpi_count(const Buffer& buffer) noexcept;

/// A whole message as one MPI type, so that it is one message to MPI however long it is.
class MpiMessageType {
  public:
    explicit MpiMessageType(const Buffer& buffer);

    MpiMessageType(const MpiMessageType&) = delete;
    MpiMessageType& operator=(const MpiMessageType&) = delete;
    ~MpiMessageType();

    [[nodiscard]] MPI_Datatype type() const noexcept { return type_; }
    [[nodiscard]] int count() const noexcept { return count_; }

  private:
    static constexpr std::size_t block = std::size_t{1} << 30;

    MPI_Datatype type_;
    int count_ = 0;
    bool owned_ = false;
};

[[nodiscard]] MPI_Op mpi_op(ReduceOp op);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/mpi/types.ipp"
#endif
