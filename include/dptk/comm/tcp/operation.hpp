/// Messages that a rank sends or receives over TCP, from when they are posted until they are complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>

#include "dptk/comm/tcp/header.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// A message that is posted. The mesh keeps its address until `is_done`, and its lock protects it.
struct TcpOperation {
    /// The other rank, by its number in the job; any_rank while a receive waits for any of them.
    int peer = 0;
    bool is_done = false;
    std::exception_ptr error = nullptr;

    void complete(std::exception_ptr problem = nullptr) noexcept {
        error = std::move(problem);
        is_done = true;
    }
};

struct TcpSend : TcpOperation {
    /// The header of kind `message`, or `request`.
    TcpHeader header = {};
    const void* data = nullptr;
};

struct TcpReceive : TcpOperation {
    /// What the header of the message must be: its group, tag, size and collective.
    TcpHeader header = {};
    void* data = nullptr;
};

}  // namespace DPTK_NAMESPACE::detail
