#pragma once

#include "dptk/comm/gloo/mesh.hpp"

#include <gloo/transport/tcp/device.h>
#include <netdb.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "dptk/control/net/host.hpp"
#include "dptk/control/net/socket.hpp"
#include "dptk/control/process/background_thread.hpp"

namespace DPTK_NAMESPACE::detail {

/// How long a wait in the store lasts before it looks at the job's state.
inline constexpr std::chrono::milliseconds gloo_store_slice{200};

DPTK_INLINE BrokenPipeIgnored::BrokenPipeIgnored() {
    ::sigemptyset(&broken_pipe_);
    ::sigaddset(&broken_pipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &broken_pipe_, &before_);
}

DPTK_INLINE BrokenPipeIgnored::~BrokenPipeIgnored() {
    if (::sigismember(&before_, SIGPIPE) == 1) return;
    const timespec at_once{};
    while (::sigtimedwait(&broken_pipe_, nullptr, &at_once) < 0 && errno == EINTR) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

DPTK_INLINE std::shared_ptr<gloo::transport::Device> make_gloo_device(const std::string& address) {
    const AllSignalsBlocked blocked;
    gloo::transport::tcp::attr attributes;
    attributes.hostname = address;
    return gloo::transport::tcp::CreateDevice(attributes);
}

DPTK_INLINE std::string_view without_source_line(std::string_view message) {
    const std::size_t end = message.find(".cc:") != std::string_view::npos ? message.find("] ") : 0;
    return message.starts_with('[') && end != 0 && end != std::string_view::npos ? message.substr(end + 2)
                                                                                 : message;
}

DPTK_INLINE std::string GlooPeerInfo::to_value() const {
    return text(host, '\n', address, '\n', endpoints);
}

DPTK_INLINE GlooPeerInfo GlooPeerInfo::from_value(std::string_view value) {
    const std::size_t first = value.find('\n');
    const std::size_t second = value.find('\n', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos)
        throw FormatError("invalid Gloo peer info in the store: expected host, address and endpoints");
    return {std::string(value.substr(0, first)), std::string(value.substr(first + 1, second - first - 1)),
            std::string(value.substr(second + 1))};
}

DPTK_INLINE std::shared_ptr<GlooMesh> GlooMesh::connect(const GlooMeshOptions& options) {
    auto mesh = std::shared_ptr<GlooMesh>(new GlooMesh(options));
    mesh->job_state_->subscribe(mesh);
    mesh->run("connecting", [&] { mesh->connect_all(options); });
    return mesh;
}

DPTK_INLINE GlooMesh::~GlooMesh() {
    if (!watch_.joinable()) return;
    closing_ = true;
    from_any_rank_->abortWaitRecv();
    watch_.join();
}

DPTK_INLINE void GlooMesh::check() const {
    if (!ended_) return;
    const std::lock_guard lock(mutex_);
    throw gloo::IoException(cause_);
}

DPTK_INLINE void GlooMesh::close_with_others(Store& job_store, const std::string& name,
                                             const ControlPlane& control) noexcept {
    try {
        const std::shared_ptr<Store> store = job_store.clone();
        const std::string count = text(name, "/closing");
        const std::string closed = text(name, "/closed");
        if (store->add(count, 1) == size_) store->set(closed, "");
        while (!store->find(closed)) {
            if (has_lost_connection_ || control.is_over()) return;
            try {
                static_cast<void>(store->get(closed, gloo_store_slice));
            } catch (const TimeoutError&) {  // looks at the connections and the job, and continues
            }
        }
        if (store->add(count, 1) != 2 * size_) return;
        for (const std::string& key : keys_of(name, "connected")) store->erase(key);
        store->erase(count);
        store->erase(closed);
    } catch (const std::exception&) {
        // Rank 0 has ended, and its store with it.
    }
}

DPTK_INLINE void GlooMesh::wake() noexcept {
    try {
        static_cast<void>(run_with_timeout(std::chrono::seconds(1),
                                           [mesh = shared_from_this()] { mesh->end("the job has failed"); }));
    } catch (const std::exception&) {  // the system cannot start a thread
        end("the job has failed");
    }
}

DPTK_INLINE void GlooMesh::throw_ended(std::string_view what) const {
    std::unique_lock lock(mutex_);
    const auto known_by = ended_at_ + cause_delay;
    const std::string cause = cause_;
    lock.unlock();
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(known_by - std::chrono::steady_clock::now());
    static_cast<void>(job_state_->wait_until_failed(std::max(left, std::chrono::milliseconds(0))));
    job_state_->check();
    throw PeerLostError(text("rank ", rank_, ": ", what, ": ", cause));
}

DPTK_INLINE void GlooMesh::connect_all(const GlooMeshOptions& options) {
    const std::shared_ptr<Store> store = options.store->clone();
    const std::vector<std::string> addresses = keys_of(options.name, "address");

    // A rank that has published its info listens already, so that a connection takes milliseconds.
    const std::chrono::milliseconds connect_timeout =
        std::min(options.timeout, std::chrono::seconds(60) + size_ * std::chrono::milliseconds(100));
    const std::shared_ptr<gloo::transport::Context> pairs = options.device->createContext(rank_, size_);
    pairs->setTimeout(
        std::max(connect_timeout / 5, std::chrono::milliseconds(1)));  // Gloo waits 5 times as long
    {
        const std::lock_guard lock(mutex_);
        pairs_ = pairs;  // from now on, end() wakes a thread that waits for a connection
    }
    check();
    const GlooPeerInfo own{host_name(), options.address, create_pairs()};

    meet(*store, addresses, own.to_value(), options.timeout);
    const Deadline deadline(connect_timeout);
    for (int other = 0; other < size_; ++other) {
        if (other == rank_) continue;
        const std::string& key = addresses[static_cast<std::size_t>(other)];
        const GlooPeerInfo peer = GlooPeerInfo::from_value(store->get(key, options.timeout));
        connect_to(peer, other, own, deadline, connect_timeout);
    }
    watch_connections();
    meet(*store, keys_of(options.name, "connected"), "", std::min(options.timeout, 2 * connect_timeout));
    store->erase(addresses[static_cast<std::size_t>(rank_)]);
}

DPTK_INLINE void GlooMesh::connect_to(const GlooPeerInfo& peer, int other, const GlooPeerInfo& own,
                                      const Deadline& deadline, std::chrono::milliseconds timeout) const {
    await_route(peer.address, deadline);
    const std::size_t bytes = peer.endpoints.size() / static_cast<std::size_t>(size_);
    const std::string endpoint = peer.endpoints.substr(static_cast<std::size_t>(rank_) * bytes, bytes);
    try {
        pairs_->getPair(other)->connect({endpoint.begin(), endpoint.end()});
    } catch (const gloo::Exception& error) {
        check();
        std::string message = text("cannot connect to rank ", other, " (", peer.host, ", listening at ",
                                   peer.address, ") from ", own.address);
        if (deadline.passed()) message += text(" within ", duration_text(timeout));
        message += text(": ", without_source_line(error.what()));
        if (own.host != peer.host) {
            message +=
                "; set DPTK_SOCKET_IFNAME (GlooOptions::interface) to the network interface "
                "between these hosts";
        }
        if (deadline.passed()) throw TimeoutError(text("rank ", rank_, ": connecting: ", message));
        throw gloo::IoException(message);
    }
}

DPTK_INLINE void GlooMesh::await_route(const std::string& address, const Deadline& deadline) const {
    constexpr std::uint16_t any_port = 1;  // connecting a UDP socket looks up a route and sends nothing
    const ResolvedAddresses peer = resolve(address.c_str(), any_port, AF_UNSPEC, AI_NUMERICHOST);
    if (peer.first == nullptr) return;
    while (!deadline.passed()) {
        check();
        const FileDescriptor probe(::socket(peer.first->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        const int result = ::connect(probe.number(), peer.first->ai_addr, peer.first->ai_addrlen);
        if (result == 0 || (errno != ENETUNREACH && errno != EHOSTUNREACH && errno != ENETDOWN)) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

DPTK_INLINE std::string GlooMesh::create_pairs() const {
    std::string endpoints;
    std::size_t bytes = 0;
    for (int other = 0; other < size_; ++other) {
        if (other == rank_) continue;
        const std::vector<char> address = pairs_->createPair(other)->address().bytes();
        bytes = address.size();
        endpoints.append(address.begin(), address.end());
    }
    return endpoints.insert(static_cast<std::size_t>(rank_) * bytes, bytes, '\0');
}

DPTK_INLINE std::vector<std::string> GlooMesh::keys_of(const std::string& name,
                                                       std::string_view phase) const {
    std::vector<std::string> keys;
    for (int rank = 0; rank < size_; ++rank) keys.push_back(text(name, '/', phase, '/', rank));
    return keys;
}

DPTK_INLINE void GlooMesh::meet(Store& store, const std::vector<std::string>& keys, std::string_view value,
                                std::chrono::milliseconds timeout) const {
    store.set(keys[static_cast<std::size_t>(rank_)], value);
    for (const Deadline deadline(timeout); !deadline.passed();) {
        check();
        try {
            return store.wait(keys, std::min(deadline.left(), gloo_store_slice));
        } catch (const TimeoutError&) {  // looks at the job's state, and continues
        }
    }
    std::string missing;
    for (int rank = 0; rank < size_; ++rank) {
        if (!store.find(keys[static_cast<std::size_t>(rank)]))
            missing += text(missing.empty() ? "" : ", ", rank);
    }
    throw TimeoutError(text("rank ", rank_, ": connecting: timed out after ", duration_text(timeout),
                            ", missing ranks ", missing, " of ", size_));
}

DPTK_INLINE void GlooMesh::watch_connections() {
    constexpr std::uint64_t unused_slot = 1;  // those of messages are in gloo/messages.ipp
    from_any_rank_ = pairs_->createUnboundBuffer(nullptr, 0);
    for (int other = 0; other < size_; ++other) {
        if (other != rank_) from_any_rank_->recv(other, unused_slot);
    }
    watch_ = start_background_thread([this] {
        try {
            from_any_rank_->waitRecv(longest_wait);
        } catch (const std::exception& error) {
            has_lost_connection_ = true;
            if (!closing_) end(without_source_line(error.what()));
        }
    });
}

DPTK_INLINE void GlooMesh::end(std::string_view cause) noexcept {
    try {
        std::unique_lock lock(mutex_);
        if (!ended_) {
            cause_ = cause;
            ended_at_ = std::chrono::steady_clock::now();
            ended_ = true;
        }
        for (gloo::transport::UnboundBuffer* buffer : buffers_) {
            buffer->abortWaitRecv();
            buffer->abortWaitSend();
        }
        const std::shared_ptr<gloo::transport::Context> pairs = pairs_;
        lock.unlock();
        // No message is posted for this buffer, so the wait times out. Gloo then closes all pairs and wakes
        // threads that wait for a connection.
        if (pairs) pairs->createUnboundBuffer(nullptr, 0)->waitRecv(std::chrono::milliseconds(1));
    } catch (const std::exception&) {
        // Gloo reports the timeout by this exception.
    }
}

DPTK_INLINE GlooBuffer::GlooBuffer(std::shared_ptr<GlooMesh> mesh, void* data, std::size_t bytes)
    : mesh_(std::move(mesh)), buffer_(mesh_->pairs_->createUnboundBuffer(data, bytes)) {
    const std::lock_guard lock(mesh_->mutex_);
    mesh_->buffers_.insert(buffer_.get());
}

DPTK_INLINE GlooBuffer::~GlooBuffer() {
    const std::lock_guard lock(mesh_->mutex_);
    mesh_->buffers_.erase(buffer_.get());
}

DPTK_INLINE void GlooBuffer::send(int to, std::uint64_t slot) {
    mesh_->check();
    buffer_->send(to, slot, 0, buffer_->size);
}

DPTK_INLINE void GlooBuffer::receive(std::vector<int> from, std::uint64_t slot) {
    mesh_->check();
    buffer_->recv(std::move(from), slot, 0, buffer_->size);
}

DPTK_INLINE void GlooBuffer::await_sent(std::chrono::milliseconds timeout) {
    mesh_->check();
    check(buffer_->waitSend(timeout));
}

DPTK_INLINE int GlooBuffer::await_received(std::chrono::milliseconds timeout) {
    mesh_->check();
    int from = -1;
    check(buffer_->waitRecv(&from, timeout));
    return from;
}

/// Gloo returns from a wait that was ended as if it were complete.
DPTK_INLINE void GlooBuffer::check(bool completed) const {
    if (completed) return;
    mesh_->check();
    throw gloo::IoException("the wait was ended");
}

}  // namespace DPTK_NAMESPACE::detail
