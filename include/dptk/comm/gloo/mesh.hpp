/// The connections of this rank to all other ranks over Gloo. The ranks exchange their addresses through a
/// Store. A thread detects lost connections, and any thread can end all waits, which Gloo by itself offers
/// only after a timeout. Gloo's errors are translated into dptk's.
#pragma once

#include <gloo/common/error.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <vector>

#include "dptk/comm/gloo/library.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/health/job_state.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// Blocks SIGPIPE in the calling thread during this object's lifetime. Gloo writes to sockets without
/// MSG_NOSIGNAL, so a closed connection would otherwise kill this process.
class BrokenPipeIgnored {
  public:
    BrokenPipeIgnored();
    ~BrokenPipeIgnored();
    BrokenPipeIgnored(const BrokenPipeIgnored&) = delete;
    BrokenPipeIgnored& operator=(const BrokenPipeIgnored&) = delete;

  private:
    sigset_t broken_pipe_;
    sigset_t before_;
};

/// Creates a Gloo device that listens at `address`. Starts a thread. Throws Gloo's exceptions.
[[nodiscard]] std::shared_ptr<gloo::transport::Device> make_gloo_device(const std::string& address);

/// Removes the source location from "[./gloo/transport/tcp/pair.cc:598] Connection closed by peer".
[[nodiscard]] std::string_view without_source_line(std::string_view message);

/// What a rank publishes before the ranks connect.
struct GlooPeerInfo {
    std::string host;
    std::string address;    ///< Numeric, for error texts.
    std::string endpoints;  ///< The binary address of this rank's pair for each rank, of the same size each.

    [[nodiscard]] std::string to_value() const;

    [[nodiscard]] static GlooPeerInfo from_value(std::string_view value);
};

struct GlooMeshOptions {
    int rank = 0;
    int size = 1;
    std::shared_ptr<gloo::transport::Device> device;
    std::string address;  ///< The numeric address at which the device listens.
    std::shared_ptr<Store> store;
    std::string name;  ///< The prefix of the keys in the store, never used for another mesh.
    /// Timeout until all ranks have published their info. From then on, the ranks must be connected within
    /// this time, and within about a minute.
    std::chrono::milliseconds timeout;
    std::shared_ptr<JobState> job_state;
};

class GlooMesh final : public FailureListener, public std::enable_shared_from_this<GlooMesh> {
  public:
    /// Connects to all other ranks. Collective; blocks. Throws TimeoutError, which names the ranks that are
    /// missing or cannot be reached, and PeerLostError if the job fails meanwhile or a connection is
    /// refused.
    [[nodiscard]] static std::shared_ptr<GlooMesh> connect(const GlooMeshOptions& options);

    GlooMesh(const GlooMesh&) = delete;
    GlooMesh& operator=(const GlooMesh&) = delete;

    DPTK_INLINE ~GlooMesh() override;

    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return size_; }

    /// Runs an operation that calls Gloo. If Gloo throws, closes all connections and throws one of dptk's
    /// errors, with the job's first cause if that cause becomes known soon. If the connections are already
    /// closed, throws without running the operation.
    template <class Operation>
    void run(std::string_view what, Operation&& operation) {
        if (ended_) throw_ended(what);
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

    /// Throws gloo::IoException if the connections are closed.
    void check() const;

    /// Records that this rank makes no more calls.
    void begin_to_close() noexcept { closing_ = true; }

    /// Blocks until all ranks are about to close their connections, one has closed them, or the job is over.
    /// Closing early would discard data that is still being sent to another rank.
    void close_with_others(Store& store, const std::string& name, const ControlPlane& control) noexcept;

    /// Ends all waits. If Gloo detects an error, Gloo's own thread may call this with a mutex of Gloo locked,
    /// and end() would deadlock on it. So end() runs on another thread, and the caller waits at most 1 s.
    DPTK_INLINE void wake() noexcept override;

  private:
    friend class GlooBuffer;

    /// How long to wait for the job's first cause after a lost connection.
    static constexpr std::chrono::milliseconds cause_delay{2000};

    explicit GlooMesh(const GlooMeshOptions& options)
        : rank_(options.rank), size_(options.size), job_state_(options.job_state) {}

    /// Throws the error of an operation whose connections are closed: the job's first cause, which names the
    /// lost rank, if that cause is known within `cause_delay` of the closing; otherwise PeerLostError with
    /// this mesh's own cause.
    [[noreturn]] void throw_ended(std::string_view what) const;

    void connect_all(const GlooMeshOptions& options);

    void connect_to(const GlooPeerInfo& peer, int other, const GlooPeerInfo& own, const Deadline& deadline,
                    std::chrono::milliseconds timeout) const;

    /// Waits until this host has a route to `address`, as it has not while a network interface is down. A
    /// Gloo pair that has failed to connect cannot be used again.
    void await_route(const std::string& address, const Deadline& deadline) const;

    /// Creates the pairs and returns their addresses, in rank order.
    [[nodiscard]] std::string create_pairs() const;

    /// The keys of all ranks for one phase of the mesh's life: "gloo/address/3".
    [[nodiscard]] std::vector<std::string> keys_of(const std::string& name, std::string_view phase) const;

    /// Sets this rank's key, and blocks until all ranks have set theirs. Throws TimeoutError, which names the
    /// missing ranks.
    void meet(Store& store, const std::vector<std::string>& keys, std::string_view value,
              std::chrono::milliseconds timeout) const;

    /// Starts a thread that waits for messages that no rank sends, and ends all other waits when a connection
    /// is lost. Gloo reports a lost connection only to threads that wait for the start of a message.
    void watch_connections();

    /// Ends all waits and closes all connections. Keeps the cause of the first call.
    void end(std::string_view cause) noexcept;

    const int rank_;
    const int size_;
    const std::shared_ptr<JobState> job_state_;
    std::shared_ptr<gloo::transport::Context> pairs_;
    mutable std::mutex mutex_;
    std::atomic<bool> ended_ = false;
    std::string cause_;
    std::chrono::steady_clock::time_point ended_at_;
    std::unordered_set<gloo::transport::UnboundBuffer*> buffers_;  // those of the living GlooBuffers
    std::unique_ptr<gloo::transport::UnboundBuffer> from_any_rank_;
    std::thread watch_;
    std::atomic<bool> closing_ = false;
    std::atomic<bool> has_lost_connection_ = false;
};

/// Memory from which Gloo sends, or to which it receives. All functions throw gloo::IoException if the
/// connections are closed, also while they wait.
class GlooBuffer {
  public:
    GlooBuffer(std::shared_ptr<GlooMesh> mesh, void* data, std::size_t bytes);
    ~GlooBuffer();
    GlooBuffer(const GlooBuffer&) = delete;
    GlooBuffer& operator=(const GlooBuffer&) = delete;

    void send(int to, std::uint64_t slot);
    void receive(std::vector<int> from, std::uint64_t slot);

    void await_sent(std::chrono::milliseconds timeout = longest_wait);

    /// Returns the sender.
    int await_received(std::chrono::milliseconds timeout = longest_wait);

    /// Ends the wait for a message.
    void stop_receiving() { buffer_->abortWaitRecv(); }

  private:
    void check(bool completed) const;

    std::shared_ptr<GlooMesh> mesh_;
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/gloo/mesh.ipp"
#endif
