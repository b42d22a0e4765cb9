/// Cancellation of Gloo's waits from another thread. By itself, Gloo only closes all connections after a
/// timeout, which a thread that waits for a partially transferred message does not notice. So the buffers
/// that Gloo's algorithms use are wrapped and registered here.
#pragma once

#include <gloo/common/error.h>
#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "dptk/comm/gloo/library.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Registry of the buffers of one mesh on which threads may be waiting.
class GlooCancellation {
  public:
    using UnboundBuffer = gloo::transport::UnboundBuffer;

    void add(UnboundBuffer* buffer);

    void remove(UnboundBuffer* buffer) noexcept;

    /// Cancels all waits, including those that begin later. Keeps the cause of the first call.
    void end(std::string_view cause);

    [[nodiscard]] bool ended() const noexcept { return ended_; }

    [[nodiscard]] std::string cause() const;

    /// Returns when the waits were canceled. Requires that ended() is true.
    [[nodiscard]] std::chrono::steady_clock::time_point ended_at() const;

    /// Throws gloo::IoException if the waits were canceled.
    void check() const;

  private:
    static void abort(UnboundBuffer* buffer);

    mutable std::mutex mutex_;
    std::atomic<bool> ended_ = false;
    std::string cause_;
    std::chrono::steady_clock::time_point ended_at_;
    std::unordered_set<UnboundBuffer*> buffers_;
};

/// A Gloo transport context that registers its buffers for cancellation.
class CancellableGlooContext final : public gloo::transport::Context {
  public:
    CancellableGlooContext(std::shared_ptr<Context> inner, std::shared_ptr<GlooCancellation> cancellation);

    std::unique_ptr<gloo::transport::Pair>& getPair(int peer) override { return inner_->getPair(peer); }
    std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override { return inner_->createPair(peer); }

    DPTK_INLINE std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(
        void* data, std::size_t bytes) override;

  private:
    std::shared_ptr<Context> inner_;
    std::shared_ptr<GlooCancellation> cancellation_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/gloo/cancellation.ipp"
#endif
