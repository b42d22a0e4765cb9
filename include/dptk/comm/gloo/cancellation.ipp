#pragma once

#include "dptk/comm/gloo/cancellation.hpp"

#include <cstdint>
#include <utility>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void GlooCancellation::add(UnboundBuffer* buffer) {
    const std::lock_guard lock(mutex_);
    buffers_.insert(buffer);
    if (ended_) abort(buffer);
}

DPTK_INLINE void GlooCancellation::remove(UnboundBuffer* buffer) noexcept {
    const std::lock_guard lock(mutex_);
    buffers_.erase(buffer);
}

DPTK_INLINE void GlooCancellation::end(std::string_view cause) {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    cause_ = cause;
    ended_at_ = std::chrono::steady_clock::now();
    ended_ = true;
    for (UnboundBuffer* buffer : buffers_) abort(buffer);
}

DPTK_INLINE std::string GlooCancellation::cause() const {
    const std::lock_guard lock(mutex_);
    return cause_;
}

DPTK_INLINE std::chrono::steady_clock::time_point GlooCancellation::ended_at() const {
    const std::lock_guard lock(mutex_);
    return ended_at_;
}

DPTK_INLINE void GlooCancellation::check() const {
    if (ended_) throw gloo::IoException(cause());
}

DPTK_INLINE void GlooCancellation::abort(UnboundBuffer* buffer) {
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
}

class CancellableGlooBuffer final : public gloo::transport::UnboundBuffer {
  public:
    CancellableGlooBuffer(std::unique_ptr<UnboundBuffer> inner,
                          std::shared_ptr<GlooCancellation> cancellation)
        : UnboundBuffer(inner->ptr, inner->size),
          inner_(std::move(inner)),
          cancellation_(std::move(cancellation)) {
        cancellation_->add(inner_.get());
    }
    ~CancellableGlooBuffer() override { cancellation_->remove(inner_.get()); }
    CancellableGlooBuffer(const CancellableGlooBuffer&) = delete;
    CancellableGlooBuffer& operator=(const CancellableGlooBuffer&) = delete;

    using UnboundBuffer::waitRecv;
    using UnboundBuffer::waitSend;

    bool waitRecv(int* rank, std::chrono::milliseconds timeout) override {
        cancellation_->check();
        return completed(inner_->waitRecv(rank, timeout));
    }
    bool waitSend(int* rank, std::chrono::milliseconds timeout) override {
        cancellation_->check();
        return completed(inner_->waitSend(rank, timeout));
    }

    void abortWaitRecv() override { inner_->abortWaitRecv(); }
    void abortWaitSend() override { inner_->abortWaitSend(); }

    void send(int to, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
        cancellation_->check();
        inner_->send(to, slot, offset, bytes);
    }
    void recv(int from, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
        cancellation_->check();
        inner_->recv(from, slot, offset, bytes);
    }
    void recv(std::vector<int> from, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
        cancellation_->check();
        inner_->recv(std::move(from), slot, offset, bytes);
    }

  private:
    /// Throws if a wait was aborted: otherwise Gloo's algorithms would continue as if the data had arrived.
    bool completed(bool completed) const {
        if (completed) return true;
        throw gloo::IoException(cancellation_->cause());
    }

    std::unique_ptr<UnboundBuffer> inner_;
    std::shared_ptr<GlooCancellation> cancellation_;
};

DPTK_INLINE CancellableGlooContext::CancellableGlooContext(std::shared_ptr<Context> inner,
                                                           std::shared_ptr<GlooCancellation> cancellation)
    : Context(inner->rank, inner->size), inner_(std::move(inner)), cancellation_(std::move(cancellation)) {}

DPTK_INLINE std::unique_ptr<gloo::transport::UnboundBuffer> CancellableGlooContext::createUnboundBuffer(
    void* data, std::size_t bytes) {
    return std::make_unique<CancellableGlooBuffer>(inner_->createUnboundBuffer(data, bytes), cancellation_);
}

}  // namespace DPTK_NAMESPACE::detail
