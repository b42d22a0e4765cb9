/// Full mesh of TCP connections for Gloo's algorithms. The ranks exchange their addresses through a Store. A
/// thread detects lost connections, and any thread can end all waits. Gloo's errors are translated into
/// dptk's.
#pragma once

#include <gloo/barrier.h>
#include <gloo/common/error.h>
#include <gloo/context.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/gloo/cancellation.hpp"
#include "dptk/comm/gloo/device.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/health/job_state.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// Removes the source location from "[./gloo/transport/tcp/pair.cc:598] Connection closed by peer".
[[nodiscard]] std::string_view without_source_line(std::string_view message);

/// What a rank publishes before the ranks connect: its host, and the addresses at which it listens.
struct GlooPeerInfo {
    std::string host;
    /// The numeric address, for error texts.
    std::string address;
    /// The binary addresses of this rank's Gloo pairs, one for each rank, concatenated in rank order; all
    /// have the same size.
    std::string endpoints;

    [[nodiscard]] std::string to_value() const;

    [[nodiscard]] static GlooPeerInfo from_value(std::string_view value);

    [[nodiscard]] std::vector<char> endpoint_for(int rank, int size) const;

    /// Returns a text such as "rank 2 (node7, listening at 10.0.0.7)".
    [[nodiscard]] std::string label(int rank) const;
};

/// Options for GlooMesh::connect().
struct GlooMeshOptions {
    int rank = 0;
    int size = 1;
    std::shared_ptr<gloo::transport::Device> device;
    /// The numeric address at which the device listens.
    std::string address;
    std::shared_ptr<Store> store;
    /// The prefix of the keys in the store. Must be unique among the meshes that use this store.
    std::string name;
    /// Timeout until all ranks have published their info. From then on, the ranks must be connected within
    /// this time, and within about a minute.
    std::chrono::milliseconds timeout;
    std::shared_ptr<JobState> job_state;
};

/// The connections of this rank to all other ranks.
class GlooMesh final : public FailureListener, public std::enable_shared_from_this<GlooMesh> {
  public:
    /// Connects to all other ranks. Collective; blocks. Throws TimeoutError, which names the ranks that are
    /// missing or cannot be reached, and PeerLostError if the job fails meanwhile or a connection is
    /// refused.
    [[nodiscard]] static std::shared_ptr<GlooMesh> connect(const GlooMeshOptions& options);

    GlooMesh(const GlooMesh&) = delete;
    GlooMesh& operator=(const GlooMesh&) = delete;

    DPTK_INLINE ~GlooMesh() override;

    /// The context for the options of Gloo's algorithms.
    [[nodiscard]] const std::shared_ptr<gloo::Context>& context() const noexcept { return context_; }

    /// Returns the tag of the next collective, which differs from the previous tag. It is the same on all
    /// ranks whose calls agree. Ranks whose calls differ exchange no data, since Gloo matches tags.
    [[nodiscard]] std::uint32_t next_tag(const Collective& call) noexcept;

    /// Returns the number of this rank's next point-to-point message. Thread-safe.
    [[nodiscard]] std::uint64_t next_message() noexcept { return messages_++; }

    /// Runs an operation that calls Gloo. If Gloo throws, closes all connections and throws one of dptk's
    /// errors, with the job's first cause if that cause becomes known soon. If the connections are already
    /// closed, throws without running the operation.
    template <class Operation>
    void run(std::string_view what, Operation&& operation) {
        if (cancellation_->ended()) throw_ended(what);
        const BrokenPipeIgnored ignored;
        try {
            with_first_cause(*job_state_, operation);
        } catch (const Error&) {
            throw;
        } catch (const std::bad_alloc&) {
            end("out of memory");
            throw;
        } catch (const gloo::IoException& error) {
            end(without_source_line(error.what()));
            throw_ended(what);
        } catch (const std::exception& error) {
            end(without_source_line(error.what()));
            throw BackendError(text("rank ", rank_, ": ", what, ": Gloo failed: ", error.what()));
        }
    }

    /// Barrier of all ranks, also for calls without elements: ranks whose calls differ do not meet. Must be
    /// called inside run().
    void barrier(const Collective& call, std::chrono::milliseconds timeout = longest_wait);

    /// Records that this rank makes no more calls.
    void begin_to_close() noexcept { closing_ = true; }

    [[nodiscard]] bool has_ended() const noexcept;

    /// Blocks until all ranks are about to close their connections, or the job has failed. Closing early
    /// would discard data that is still being sent to another rank.
    void close_with_others() noexcept;

    /// Ends all waits. If Gloo detects an error, Gloo's own thread may call this with a mutex of Gloo locked,
    /// and end() would deadlock on it. So end() runs on another thread, and the caller waits at most 1 s.
    DPTK_INLINE void wake() noexcept override;

  private:
    /// How long to wait for the job's first cause after a lost connection.
    static constexpr std::chrono::milliseconds cause_delay{2000};
    /// The number of different values in the upper half of a tag, which counts the calls.
    static constexpr std::uint32_t numbers = 0xffff;
    static constexpr std::uint32_t shutdown_tag = numbers << 16;
    /// Gloo's collectives use slots with small numbers in the most significant byte.
    static constexpr std::uint64_t watch_slot = std::uint64_t{0x41} << 56;

    /// A Gloo context over pairs that are already connected.
    class ConnectedContext final : public gloo::Context {
      public:
        ConnectedContext(std::shared_ptr<gloo::transport::Device> device,
                         std::shared_ptr<gloo::transport::Context> pairs);
    };

    explicit GlooMesh(const GlooMeshOptions& options)
        : rank_(options.rank), size_(options.size), job_state_(options.job_state) {}

    /// Throws the error of an operation whose connections are closed: the job's first cause, which names the
    /// lost rank, if that cause is known within `cause_delay` of the closing; otherwise PeerLostError with
    /// this mesh's own cause.
    [[noreturn]] void throw_ended(std::string_view what) const;

    template <class Action>
    void for_others(Action&& action) const {
        for (int other = 0; other < size_; ++other) {
            if (other != rank_) action(other);
        }
    }

    void connect_all(const GlooMeshOptions& options);

    /// Waits until this host has a route to `address`, as it has not while a network interface is down. A
    /// Gloo pair that has failed to connect cannot be used again.
    void await_route(const std::string& address, const Deadline& deadline) const;

    /// Creates the pairs and returns their addresses, in rank order.
    [[nodiscard]] std::string create_pairs(gloo::transport::Context& pairs) const;

    /// Publishes the pairs, so that end() can wake a thread that waits for a connection.
    void publish_for_end(std::shared_ptr<gloo::transport::Context> pairs);

    template <class Key>
    void wait_for_others(Store& store, const Key& key, std::chrono::milliseconds timeout) const {
        constexpr std::chrono::milliseconds slice{200};
        std::vector<std::string> keys;
        for_others([&](int other) { keys.push_back(key(other)); });
        const Deadline deadline(timeout);
        while (true) {
            cancellation_->check();
            try {
                return store.wait(keys, std::min(deadline.left(), slice));
            } catch (const TimeoutError&) {
                if (deadline.passed()) break;
            }
        }
        std::string missing;
        for_others([&](int other) {
            if (!store.find(key(other))) missing += text(missing.empty() ? "" : ", ", other);
        });
        throw TimeoutError(text("rank ", rank_, ": connecting: timed out after ", duration_text(timeout),
                                ", missing ranks ", missing, " of ", size_));
    }

    template <class Connect>
    void connect_to(const GlooPeerInfo& own, const GlooPeerInfo& peer, int other, const Deadline& deadline,
                    std::chrono::milliseconds timeout, Connect&& connect) const {
        try {
            connect();
        } catch (const gloo::Exception& error) {
            cancellation_->check();
            std::string message = text("cannot connect to ", peer.label(other), " from ", own.address);
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

    /// Starts a thread that waits for messages that no rank sends, and ends all other waits when a connection
    /// is lost. Gloo reports a lost connection only to threads that wait for the start of a message.
    void watch_connections(gloo::transport::Context& pairs);

    void barrier(std::uint32_t tag, std::chrono::milliseconds timeout);

    /// Ends all waits and closes all connections. Keeps the cause of the first call.
    void end(std::string_view cause) noexcept;

    const int rank_;
    const int size_;
    const std::shared_ptr<JobState> job_state_;
    const std::shared_ptr<GlooCancellation> cancellation_ = std::make_shared<GlooCancellation>();
    std::mutex mutex_;
    std::shared_ptr<gloo::transport::Context> pairs_;
    std::shared_ptr<gloo::Context> context_;
    std::unique_ptr<gloo::transport::UnboundBuffer> from_any_rank_;
    std::thread watch_;
    std::atomic<bool> closing_ = false;
    std::uint32_t calls_ = 0;
    std::atomic<std::uint64_t> messages_ = 0;
};

/// Orderly shutdown: keeps the connections of a closed mesh open until all ranks have closed their meshes.
/// Owned by the thread that waits for the other ranks.
class GlooShutdown final : public WatchdogTask {
  public:
    static void begin(const std::shared_ptr<GlooMesh>& mesh, const std::shared_ptr<ControlPlane>& control);

    DPTK_INLINE void look() noexcept override;

    [[nodiscard]] DPTK_INLINE std::chrono::milliseconds interval() const noexcept override;

  private:
    GlooShutdown(std::shared_ptr<GlooMesh> mesh, std::shared_ptr<ControlPlane> control);

    /// The end of the program waits for it. The first member, so that it is destroyed after the mesh.
    const std::shared_ptr<void> delays_end_;
    const std::shared_ptr<GlooMesh> mesh_;
    const std::shared_ptr<ControlPlane> control_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/gloo/mesh.ipp"
#endif
