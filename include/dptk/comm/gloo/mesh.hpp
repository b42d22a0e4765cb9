/// The connections of this rank to all other ranks over Gloo. The ranks exchange their addresses through a
/// Store. A thread detects lost connections, and any thread can end all waits, which Gloo by itself offers
/// only after a timeout. Gloo's errors are translated into dptk's.
#pragma once

#include <gloo/common/error.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <signal.h>
#include <sys/socket.h>

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
#include <utility>
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

/// Creates a Gloo device that listens at the numeric `address`. Starts a thread. Throws Gloo's exceptions.
[[nodiscard]] std::shared_ptr<gloo::transport::Device> make_gloo_device(const std::string& address);

/// Removes the source location from "[./gloo/transport/tcp/pair.cc:598] Connection closed by peer".
[[nodiscard]] std::string_view without_source_line(std::string_view message);

struct GlooMeshOptions {
    int rank = 0;
    int size = 1;
    std::shared_ptr<gloo::transport::Device> device;
    std::shared_ptr<Store> store;
    std::string name;  ///< The prefix of the keys in the store, never used for another mesh.
    /// Timeout until all ranks have published their addresses. From then on, the ranks must be connected
    /// within this time, and within about a minute.
    std::chrono::milliseconds timeout;
    std::shared_ptr<ControlPlane> control;  ///< If the job fails, all waits end.
};

class GlooMesh final : public FailureListener, public std::enable_shared_from_this<GlooMesh> {
  public:
    /// Connects to all other ranks. Collective; blocks. Throws TimeoutError, which names the ranks that are
    /// missing or cannot be reached, and PeerLostError if the job fails meanwhile or a connection is
    /// refused.
    [[nodiscard]] static std::shared_ptr<GlooMesh> connect(GlooMeshOptions options);

    GlooMesh(const GlooMesh&) = delete;
    GlooMesh& operator=(const GlooMesh&) = delete;

    DPTK_INLINE ~GlooMesh() override;

    [[nodiscard]] int rank() const noexcept { return options_.rank; }
    [[nodiscard]] int size() const noexcept { return options_.size; }

    /// Runs an operation that calls Gloo, unless the connections are closed. If Gloo throws, closes all
    /// connections and throws one of dptk's errors, with the job's first cause if it becomes known soon.
    template <class Operation>
    void run(std::string_view what, Operation&& operation) {
        const BrokenPipeIgnored ignored;
        with_first_cause(*options_.control->job_state(), [&] {
            try {
                check();
                operation();
            } catch (const Error&) {
                throw;
            } catch (const std::bad_alloc&) {
                end("out of memory");
                throw;
            } catch (const gloo::IoException& error) {
                end(error.what());
                throw PeerLostError(
                    text("rank ", rank(), ": ", what, ": ", without_source_line(error.what())));
            } catch (const std::exception& error) {
                end(error.what());
                throw BackendError(text("rank ", rank(), ": ", what, ": Gloo failed: ", error.what()));
            }
        });
    }

    /// Throws gloo::IoException if the connections are closed.
    void check() const;

    /// Records that this rank makes no more calls.
    void begin_to_close() noexcept { closing_ = true; }

    /// Blocks until all ranks are about to close their connections, one has closed them, or the job is over.
    /// Closing early would discard data that is still being sent to another rank.
    void close_with_others() noexcept;

    /// Ends all waits. If Gloo detects an error, Gloo's own thread may call this with a mutex of Gloo locked,
    /// and end() would deadlock on it. So end() runs on another thread, and the caller waits at most 1 s.
    DPTK_INLINE void wake() noexcept override;

  private:
    friend class GlooBuffer;

    explicit GlooMesh(GlooMeshOptions options) : options_(std::move(options)) {}

    void connect_all();

    /// Connects to a rank whose addresses for all ranks are `endpoints`.
    void connect_to(int other, const std::string& endpoints, const Deadline& deadline) const;

    /// Waits until this host has a route to the address, as it has not while a network interface is down. A
    /// Gloo pair that has failed to connect cannot be used again.
    void await_route(const sockaddr_storage& address, const Deadline& deadline) const;

    /// Creates the pairs and returns their binary addresses, in rank order, of the same size each.
    [[nodiscard]] std::string create_pairs() const;

    /// The keys of all ranks for one phase of the mesh's life: "gloo/address/3".
    [[nodiscard]] std::vector<std::string> keys_of(std::string_view phase) const;

    /// Sets this rank's key, and blocks until all ranks have set theirs. Throws TimeoutError, which names the
    /// missing ranks.
    void meet(Store& store, const std::vector<std::string>& keys, std::string_view value,
              std::chrono::milliseconds timeout) const;

    /// Starts a thread that waits for messages that no rank sends, and ends all other waits when a connection
    /// is lost. Gloo reports a lost connection only to threads that wait for the start of a message.
    void watch_connections();

    /// Ends all waits and closes all connections. Keeps the cause of the first call.
    void end(std::string_view cause) noexcept;

    const GlooMeshOptions options_;
    std::shared_ptr<gloo::transport::Context> pairs_;
    mutable std::mutex mutex_;
    std::atomic<bool> ended_ = false;
    std::string cause_;
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

    void await_sent();

    /// Returns the sender.
    int await_received();

    /// Ends the wait for a message.
    void stop_receiving() { buffer_->abortWaitRecv(); }

  private:
    /// Throws if a wait was ended: Gloo then returns from it as if it were complete.
    void check(bool completed) const;

    std::shared_ptr<GlooMesh> mesh_;
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/gloo/mesh.ipp"
#endif
