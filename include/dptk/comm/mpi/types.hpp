/// Mapping of dtypes, reduction operations and messages to MPI datatypes and operations.
#pragma once

#include <cstddef>

#include "dptk/comm/mpi/environment.hpp"
#include "dptk/comm/reduce_op.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

[[nodiscard]] MPI_Datatype mpi_datatype(DType dtype);

/// The number of elements of type mpi_datatype() that the buffer holds.
[[nodiscard]] std::size_t mpi_count(const Buffer& buffer) noexcept;

/// MPI datatype for a whole message, so that messages with more than 2^31 elements need only one MPI call.
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

/// Returns whether dptk has an MPI operation of its own, which reduces host memory only: MPI_MIN and MPI_MAX
/// may drop a NaN.
[[nodiscard]] bool has_own_mpi_op(ReduceOp op, DType dtype) noexcept;

[[nodiscard]] MPI_Op mpi_op(ReduceOp op, DType dtype);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/mpi/types.ipp"
#endif
