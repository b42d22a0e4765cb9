#pragma once

#include "dptk/comm/gloo/mesh.hpp"

#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <pthread.h>

#include <algorithm>
#include <cerrno>

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

DPTK_INLINE std::shared_ptr<GlooMesh> GlooMesh::connect(GlooMeshOptions options) {
    auto mesh = std::shared_ptr<GlooMesh>(new GlooMesh(std::move(options)));
    mesh->options_.control->job_state()->subscribe(mesh);
    mesh->run("connecting", [&] { mesh->connect_all(); });
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

DPTK_INLINE void GlooMesh::close_with_others() noexcept {
    try {
        const std::shared_ptr<Store> store = options_.store->clone();
        const std::string count = text(options_.name, "/closing");
        const std::string closed = text(options_.name, "/closed");
        if (store->add(count, 1) == size()) store->set(closed, "");
        while (!store->find(closed)) {
            if (has_lost_connection_ || options_.control->is_over()) return;
            try {
                static_cast<void>(store->get(closed, gloo_store_slice));
            } catch (const TimeoutError&) {  // looks at the connections and the job, and continues
            }
        }
        if (store->add(count, 1) != 2 * size()) return;
        for (const std::string& key : keys_of("connected")) store->erase(key);
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

DPTK_INLINE void GlooMesh::connect_all() {
    const std::shared_ptr<Store> store = options_.store->clone();
    const std::vector<std::string> addresses = keys_of("address");

    // A rank that has published its addresses listens already, so that a connection takes milliseconds.
    const std::chrono::milliseconds connect_timeout =
        std::min(options_.timeout, std::chrono::seconds(60) + size() * std::chrono::milliseconds(100));
    const std::shared_ptr<gloo::transport::Context> pairs = options_.device->createContext(rank(), size());
    pairs->setTimeout(
        std::max(connect_timeout / 5, std::chrono::milliseconds(1)));  // Gloo waits 5 times as long
    {
        const std::lock_guard lock(mutex_);
        pairs_ = pairs;  // from now on, end() wakes a thread that waits for a connection
    }
    check();

    meet(*store, addresses, create_pairs(), options_.timeout);
    const Deadline deadline(connect_timeout);
    for (int other = 0; other < size(); ++other) {
        if (other == rank()) continue;
        connect_to(other, store->get(addresses[static_cast<std::size_t>(other)], options_.timeout), deadline);
    }
    watch_connections();
    meet(*store, keys_of("connected"), "", std::min(options_.timeout, 2 * connect_timeout));
    store->erase(addresses[static_cast<std::size_t>(rank())]);
}

DPTK_INLINE void GlooMesh::connect_to(int other, const std::string& endpoints,
                                      const Deadline& deadline) const {
    const std::size_t bytes = endpoints.size() / static_cast<std::size_t>(size());
    const std::string endpoint = endpoints.substr(static_cast<std::size_t>(rank()) * bytes, bytes);
    const std::vector<char> address(endpoint.begin(), endpoint.end());
    const sockaddr_storage where = gloo::transport::tcp::Address(address).getSockaddr();
    await_route(where, deadline);
    try {
        pairs_->getPair(other)->connect(address);
    } catch (const gloo::Exception& error) {
        check();
        const std::string problem = text(
            "cannot connect to rank ", other, " at ",
            socket_address(reinterpret_cast<const sockaddr*>(&where), sizeof where).text(), ": ",
            without_source_line(error.what()), "; if this rank is on another host, set DPTK_SOCKET_IFNAME ",
            "(GlooOptions::interface) to the network interface between the hosts");
        if (deadline.passed()) throw TimeoutError(text("rank ", rank(), ": connecting: ", problem));
        throw gloo::IoException(problem);
    }
}

DPTK_INLINE void GlooMesh::await_route(const sockaddr_storage& address, const Deadline& deadline) const {
    while (!deadline.passed()) {
        check();
        // Connecting a UDP socket looks up a route and sends nothing.
        const FileDescriptor probe(::socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        const int result =
            ::connect(probe.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
        if (result == 0 || (errno != ENETUNREACH && errno != EHOSTUNREACH && errno != ENETDOWN)) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

DPTK_INLINE std::string GlooMesh::create_pairs() const {
    std::string endpoints;
    std::size_t bytes = 0;
    for (int other = 0; other < size(); ++other) {
        if (other == rank()) continue;
        const std::vector<char> address = pairs_->createPair(other)->address().bytes();
        bytes = address.size();
        endpoints.append(address.begin(), address.end());
    }
    return endpoints.insert(static_cast<std::size_t>(rank()) * bytes, bytes, '\0');
}

DPTK_INLINE std::vector<std::string> GlooMesh::keys_of(std::string_view phase) const {
    std::vector<std::string> keys;
    for (int rank = 0; rank < size(); ++rank) keys.push_back(text(options_.name, '/', phase, '/', rank));
    return keys;
}

DPTK_INLINE void GlooMesh::meet(Store& store, const std::vector<std::string>& keys, std::string_view value,
                                std::chrono::milliseconds timeout) const {
    store.set(keys[static_cast<std::size_t>(rank())], value);
    for (const Deadline deadline(timeout); !deadline.passed();) {
        check();
        try {
            return store.wait(keys, std::min(deadline.left(), gloo_store_slice));
        } catch (const TimeoutError&) {  // looks at the job's state, and continues
        }
    }
    std::string missing;
    for (int other = 0; other < size(); ++other) {
        if (!store.find(keys[static_cast<std::size_t>(other)]))
            missing += text(missing.empty() ? "" : ", ", other);
    }
    throw TimeoutError(text("rank ", rank(), ": connecting: timed out after ", duration_text(timeout),
                            ", missing ranks ", missing, " of ", size()));
}

DPTK_INLINE void GlooMesh::watch_connections() {
    constexpr std::uint64_t unused_slot = 1;  // those of messages are in gloo/messages.ipp
    from_any_rank_ = pairs_->createUnboundBuffer(nullptr, 0);
    for (int other = 0; other < size(); ++other) {
        if (other != rank()) from_any_rank_->recv(other, unused_slot);
    }
    watch_ = start_background_thread([this] {
        try {
            from_any_rank_->waitRecv(longest_wait);
        } catch (const std::exception& error) {
            has_lost_connection_ = true;
            if (!closing_) end(error.what());
        }
    });
}

DPTK_INLINE void GlooMesh::end(std::string_view cause) noexcept {
    try {
        std::unique_lock lock(mutex_);
        if (!ended_) {
            cause_ = without_source_line(cause);
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

DPTK_INLINE void GlooBuffer::await_sent() {
    mesh_->check();
    check(buffer_->waitSend(longest_wait));
}

DPTK_INLINE int GlooBuffer::await_received() {
    mesh_->check();
    int from = -1;
    check(buffer_->waitRecv(&from, longest_wait));
    return from;
}

DPTK_INLINE void GlooBuffer::check(bool completed) const {
    if (completed) return;
    mesh_->check();
    throw gloo::IoException("the wait was ended");
}

}  // namespace DPTK_NAMESPACE::detail
