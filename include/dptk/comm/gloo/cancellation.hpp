/// Gloo, with waits that another thread can end. Its own means is a timeout of somebody's, which closes all
/// connections; a thread that waits for a message of which a part has been transferred already does not
/// notice even that. So the buffers that Gloo's algorithms use are wrapped here, and remembered while they
/// live.
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
#include <vector>

#include "dptk/comm/gloo/library.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// All buffers of one mesh with which somebody may be waiting.
class GlooCancellation {
  public:
    using UnboundBuffer = gloo::transport::UnboundBuffer;

    void add(UnboundBuffer* buffer);

    void remove(UnboundBuffer* buffer) noexcept;

    /// Ends all waits, those that begin later as well. The first cause stays.
    void end(std::string_view cause);

    [[nodiscard]] bool ended() const noexcept { return ended_; }

    [[nodiscard]] std::string cause() const;

    /// Meaningful once ended.
    [[nodiscard]] std::chrono::steady_clock::time_point ended_at() const;

    void check() const;

  private:
    static void abort(UnboundBuffer* buffer);

    mutable std::mutex mutex_;
    std::atomic<bool> ended_ = false;
    std::string cause_;
    std::chrono::steady_clock::time_point ended_at_;
    std::vector<UnboundBuffer*> buffers_;
};

/// A transport context whose buffers are watched.
class CancellableGlooContext final : public gloo::transport::Context {
  public:
    CancellableGlooContext(std::shared_ptr<Context> inner, std::shared_ptr<GlooCancellation> waits);

    std::unique_ptr<gloo::transport::Pair>& getPair(int peer) override { return inner_->getPair(peer); }
    std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override { return inner_->createPair(peer); }

    DPTK_INLINE std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(
        void* data, std::size_t bytes) override;

  private:
    std::shared_ptr<Context> inner_;
    std::shared_ptr<GlooCancellation> waits_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/gloo/cancellation.ipp"
#endif
