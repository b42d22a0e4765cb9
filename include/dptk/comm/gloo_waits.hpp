/// Gloo, with waits that another thread can end. Its own means is a timeout of somebody's, which closes all
/// connections; a thread that waits for a message of which a part has been transferred already does not
/// notice even that. So the buffers that Gloo's algorithms use are wrapped here, and remembered while they
/// live.
#pragma once

#include "dptk/comm/gloo_library.hpp"

#include <gloo/common/error.h>
#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dptk::detail {

/// All buffers of one mesh with which somebody may be waiting.
class GlooWaits {
  public:
    using UnboundBuffer = gloo::transport::UnboundBuffer;

    void add(UnboundBuffer* buffer) {
        const std::lock_guard lock(mutex_);
        buffers_.push_back(buffer);
        if (ended_) abort(buffer);
    }

    void remove(UnboundBuffer* buffer) noexcept {
        const std::lock_guard lock(mutex_);
        std::erase(buffers_, buffer);
    }

    /// Ends all waits, those that begin later as well. The first cause stays.
    void end(std::string_view cause) {
        const std::lock_guard lock(mutex_);
        if (ended_) return;
        cause_ = cause;
        ended_at_ = std::chrono::steady_clock::now();
        ended_ = true;
        for (UnboundBuffer* buffer : buffers_) abort(buffer);
    }

    [[nodiscard]] bool ended() const noexcept { return ended_; }

    [[nodiscard]] std::string cause() const {
        const std::lock_guard lock(mutex_);
        return cause_;
    }

    /// Meaningful once ended.
    [[nodiscard]] std::chrono::steady_clock::time_point ended_at() const {
        const std::lock_guard lock(mutex_);
        return ended_at_;
    }

    void check() const {
        if (ended_) throw gloo::IoException(cause());
    }

  private:
    static void abort(UnboundBuffer* buffer) {
        buffer->abortWaitRecv();
        buffer->abortWaitSend();
    }

    mutable std::mutex mutex_;
    std::atomic<bool> ended_ = false;
    std::string cause_;
    std::chrono::steady_clock::time_point ended_at_;
    std::vector<UnboundBuffer*> buffers_;
};

class WatchedGlooBuffer final : public gloo::transport::UnboundBuffer {
  public:
    WatchedGlooBuffer(std::unique_ptr<UnboundBuffer> inner, std::shared_ptr<GlooWaits> waits)
        : UnboundBuffer(inner->ptr, inner->size), inner_(std::move(inner)), waits_(std::move(waits)) {
        waits_->add(inner_.get());
    }
    ~WatchedGlooBuffer() override { waits_->remove(inner_.get()); }
    WatchedGlooBuffer(const WatchedGlooBuffer&) = delete;
    WatchedGlooBuffer& operator=(const WatchedGlooBuffer&) = delete;

    using UnboundBuffer::waitRecv;
    using UnboundBuffer::waitSend;

    bool waitRecv(int* rank, std::chrono::milliseconds timeout) override {
        waits_->check();
        return completed(inner_->waitRecv(rank, timeout));
    }
    bool waitSend(int* rank, std::chrono::milliseconds timeout) override {
        waits_->check();
        return completed(inner_->waitSend(rank, timeout));
    }

    void abortWaitRecv() override { inner_->abortWaitRecv(); }
    void abortWaitSend() override { inner_->abortWaitSend(); }

    void send(int to, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
        waits_->check();
        inner_->send(to, slot, offset, bytes);
    }
    void recv(int from, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
        waits_->check();
        inner_->recv(from, slot, offset, bytes);
    }
    void recv(std::vector<int> from, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
        waits_->check();
        inner_->recv(std::move(from), slot, offset, bytes);
    }

  private:
    /// Gloo's algorithms would go on with a wait that was aborted as if the data had come.
    bool completed(bool completed) const {
        if (completed) return true;
        throw gloo::IoException(waits_->cause());
    }

    std::unique_ptr<UnboundBuffer> inner_;
    std::shared_ptr<GlooWaits> waits_;
};

/// A transport context whose buffers are watched.
class WatchedGlooContext final : public gloo::transport::Context {
  public:
    WatchedGlooContext(std::shared_ptr<Context> inner, std::shared_ptr<GlooWaits> waits)
        : Context(inner->rank, inner->size), inner_(std::move(inner)), waits_(std::move(waits)) {}

    std::unique_ptr<gloo::transport::Pair>& getPair(int peer) override { return inner_->getPair(peer); }
    std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override { return inner_->createPair(peer); }

    std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* data,
                                                                        std::size_t bytes) override {
        return std::make_unique<WatchedGlooBuffer>(inner_->createUnboundBuffer(data, bytes), waits_);
    }

  private:
    std::shared_ptr<Context> inner_;
    std::shared_ptr<GlooWaits> waits_;
};

}  // namespace dptk::detail
