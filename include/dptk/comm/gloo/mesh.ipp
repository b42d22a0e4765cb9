#pragma once

#include "dptk/comm/gloo/mesh.hpp"

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>

#include "dptk/control/health/program_end.hpp"
#include "dptk/control/net/host.hpp"
#include "dptk/control/net/socket.hpp"
#include "dptk/control/process/background_thread.hpp"

namespace DPTK_NAMESPACE::detail {

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
    if (first == std::string_view::npos || second == std::string_view::npos) {
        throw FormatError("invalid Gloo peer info in the store: expected host, address and endpoints");
    }
    return {std::string(value.substr(0, first)), std::string(value.substr(first + 1, second - first - 1)),
            std::string(value.substr(second + 1))};
}

DPTK_INLINE std::vector<char> GlooPeerInfo::endpoint_for(int rank, int size) const {
    const std::size_t bytes = endpoints.size() / static_cast<std::size_t>(size);
    const std::string part = endpoints.substr(static_cast<std::size_t>(rank) * bytes, bytes);
    return {part.begin(), part.end()};
}

DPTK_INLINE std::string GlooPeerInfo::label(int rank) const {
    return text("rank ", rank, " (", host, ", listening at ", address, ')');
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

DPTK_INLINE std::uint32_t GlooMesh::next_tag(const Collective& call) noexcept {
    calls_ = (calls_ + 1) % numbers;
    return calls_ << 16 | static_cast<std::uint32_t>(hash_of(call) & 0xffff);
}

DPTK_INLINE void GlooMesh::barrier(const Collective& call, std::chrono::milliseconds timeout) {
    barrier(next_tag(call), timeout);
}

DPTK_INLINE bool GlooMesh::has_ended() const noexcept {
    return cancellation_->ended() || job_state_->failed();
}

DPTK_INLINE void GlooMesh::close_with_others() noexcept {
    try {
        const BrokenPipeIgnored ignored;
        barrier(shutdown_tag, longest_wait);
        // The last messages of the barrier itself are still being sent.
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    } catch (const std::exception&) {
        // The other ranks have ended, or do not respond.
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

DPTK_INLINE GlooMesh::ConnectedContext::ConnectedContext(std::shared_ptr<gloo::transport::Device> device,
                                                         std::shared_ptr<gloo::transport::Context> pairs)
    : Context(pairs->rank, pairs->size) {
    device_ = std::move(device);
    transportContext_ = std::move(pairs);
    setTimeout(longest_wait);  // the watchdog enforces timeouts
}

DPTK_INLINE void GlooMesh::throw_ended(std::string_view what) const {
    const auto known_by = cancellation_->ended_at() + cause_delay;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(known_by - std::chrono::steady_clock::now());
    static_cast<void>(job_state_->wait_until_failed(std::max(left, std::chrono::milliseconds(0))));
    job_state_->check();
    throw PeerLostError(text("rank ", rank_, ": ", what, ": ", cancellation_->cause()));
}

DPTK_INLINE void GlooMesh::connect_all(const GlooMeshOptions& options) {
    const std::shared_ptr<Store> store = options.store->clone();
    const auto key = [&](int rank) { return text(options.name, '/', rank); };

    // A rank that has published its info listens already, so that a connection takes milliseconds.
    const std::chrono::milliseconds connect_timeout =
        std::min(options.timeout, std::chrono::seconds(60) + size_ * std::chrono::milliseconds(100));
    const std::shared_ptr<gloo::transport::Context> pairs = options.device->createContext(rank_, size_);
    pairs->setTimeout(
        std::max(connect_timeout / 5, std::chrono::milliseconds(1)));  // Gloo waits 5 times as long
    GlooPeerInfo own{host_name(), options.address, create_pairs(*pairs)};
    publish_for_end(pairs);

    store->set(key(rank_), own.to_value());
    wait_for_others(*store, key, options.timeout);
    const Deadline deadline(connect_timeout);
    for_others([&](int other) {
        const GlooPeerInfo peer = GlooPeerInfo::from_value(store->get(key(other), options.timeout));
        await_route(peer.address, deadline);
        connect_to(own, peer, other, deadline, connect_timeout,
                   [&] { pairs->getPair(other)->connect(peer.endpoint_for(rank_, size_)); });
    });

    context_ = std::make_shared<ConnectedContext>(
        options.device, std::make_shared<CancellableGlooContext>(pairs, cancellation_));
    watch_connections(*pairs);
    barrier({.verb = Verb::barrier}, std::min(options.timeout, 2 * connect_timeout));
    store->erase(key(rank_));
}

DPTK_INLINE void GlooMesh::await_route(const std::string& address, const Deadline& deadline) const {
    constexpr std::uint16_t any_port = 1;  // connecting a UDP socket looks up a route and sends nothing
    const ResolvedAddresses peer = resolve(address.c_str(), any_port, AF_UNSPEC, AI_NUMERICHOST);
    if (peer.first == nullptr) return;
    while (!deadline.passed()) {
        cancellation_->check();
        const FileDescriptor probe(::socket(peer.first->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        const int result = ::connect(probe.number(), peer.first->ai_addr, peer.first->ai_addrlen);
        if (result == 0 || (errno != ENETUNREACH && errno != EHOSTUNREACH && errno != ENETDOWN)) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

DPTK_INLINE std::string GlooMesh::create_pairs(gloo::transport::Context& pairs) const {
    std::string endpoints;
    std::vector<std::string> by_rank(static_cast<std::size_t>(size_));
    std::size_t bytes = 0;
    for_others([&](int other) {
        const std::vector<char> address = pairs.createPair(other)->address().bytes();
        by_rank[static_cast<std::size_t>(other)].assign(address.begin(), address.end());
        bytes = address.size();
    });
    by_rank[static_cast<std::size_t>(rank_)].assign(bytes, '\0');
    for (const std::string& one : by_rank) endpoints += one;
    return endpoints;
}

DPTK_INLINE void GlooMesh::publish_for_end(std::shared_ptr<gloo::transport::Context> pairs) {
    {
        const std::lock_guard lock(mutex_);
        pairs_ = std::move(pairs);
    }
    cancellation_->check();
}

DPTK_INLINE void GlooMesh::watch_connections(gloo::transport::Context& pairs) {
    from_any_rank_ = pairs.createUnboundBuffer(nullptr, 0);
    for_others([&](int other) { from_any_rank_->recv(other, watch_slot); });
    watch_ = start_background_thread([this] {
        try {
            from_any_rank_->waitRecv(longest_wait);
        } catch (const std::exception& error) {
            if (!closing_) end(without_source_line(error.what()));
        }
    });
}

DPTK_INLINE void GlooMesh::barrier(std::uint32_t tag, std::chrono::milliseconds timeout) {
    gloo::BarrierOptions options(context_);
    options.setTag(tag);
    options.setTimeout(timeout);
    gloo::barrier(options);
}

DPTK_INLINE void GlooMesh::end(std::string_view cause) noexcept {
    try {
        cancellation_->end(cause);
        const std::lock_guard lock(mutex_);
        // No message is posted for this buffer, so the wait times out. Gloo then closes all pairs and wakes
        // threads that wait for a connection.
        if (pairs_) pairs_->createUnboundBuffer(nullptr, 0)->waitRecv(std::chrono::milliseconds(1));
    } catch (const std::exception&) {
        // Gloo reports the timeout by this exception.
    }
}

DPTK_INLINE void GlooShutdown::begin(const std::shared_ptr<GlooMesh>& mesh,
                                     const std::shared_ptr<ControlPlane>& control) {
    mesh->begin_to_close();
    if (mesh->has_ended()) return;
    const auto shutdown = std::shared_ptr<GlooShutdown>(new GlooShutdown(mesh, control));
    Watchdog::get().watch(shutdown);
    start_background_thread([shutdown] { shutdown->mesh_->close_with_others(); }).detach();
}

DPTK_INLINE void GlooShutdown::look() noexcept {
    if (control_->is_over()) mesh_->wake();
}

DPTK_INLINE std::chrono::milliseconds GlooShutdown::interval() const noexcept {
    return std::chrono::milliseconds(200);
}

DPTK_INLINE GlooShutdown::GlooShutdown(std::shared_ptr<GlooMesh> mesh, std::shared_ptr<ControlPlane> control)
    : delays_end_(ProgramEnd::get().begin_shutdown(control->timeout())),
      mesh_(std::move(mesh)),
      control_(std::move(control)) {}

}  // namespace DPTK_NAMESPACE::detail
