/// TCP connections between all ranks, as Gloo's algorithms need them: made through a Store, watched while
/// they live, and ended from any thread. Here, and nowhere else, Gloo's errors become dptk's.
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

/// "[./gloo/transport/tcp/pair.cc:598] Connection closed by peer" without its first part.
[[nodiscard]] std::string_view without_source_line(std::string_view message);

/// What a rank tells the others before they connect: who it is, and where it listens for each of them.
struct GlooPeerInfo {
    std::string host;
    /// In numbers, for messages.
    std::string address;
    /// Gloo's own addresses, by rank, one after the other and all of one size.
    std::string endpoints;

    [[nodiscard]] std::string to_value() const;

    [[nodiscard]] static GlooPeerInfo from_value(std::string_view value);

    [[nodiscard]] std::vector<char> endpoint_for(int rank, int size) const;

    /// "rank 2 (node7, listening at 10.0.0.7)"
    [[nodiscard]] std::string label(int rank) const;
};

/// How a mesh is made.
struct GlooMeshOptions {
    int rank = 0;
    int size = 1;
    std::shared_ptr<gloo::transport::Device> device;
    /// Behind which the device is found, in numbers.
    std::string address;
    std::shared_ptr<Store> store;
    /// Of the keys; no two meshes in one store may have the same.
    std::string name;
    /// For the others to come, and then for the connections.
    std::chrono::milliseconds timeout;
    std::shared_ptr<JobState> job_state;
};

class GlooMesh final : public FailureListener {
  public:
    /// Connects with all other ranks. Collective. Throws TimeoutError with the ranks that have not come or
    /// cannot be reached, and PeerLostError where the job fails meanwhile or a connection is refused.
    [[nodiscard]] static std::shared_ptr<GlooMesh> connect(const GlooMeshOptions& options);

    GlooMesh(const GlooMesh&) = delete;
    GlooMesh& operator=(const GlooMesh&) = delete;

    DPTK_INLINE ~GlooMesh() override;

    /// For the options of Gloo's algorithms.
    [[nodiscard]] const std::shared_ptr<gloo::Context>& context() const noexcept { return context_; }

    /// Another one than the collective before had, and the same on all ranks.
    [[nodiscard]] std::uint32_t next_tag() noexcept { return tag_ = (tag_ + 1) % goodbye_tag; }

    /// The number of the next message between two ranks. From any thread.
    [[nodiscard]] std::uint64_t next_message() noexcept { return messages_++; }

    /// Runs something that calls Gloo. Whatever Gloo throws closes all connections and arrives as an error of
    /// dptk: with the job's first cause, where that is known by then or soon. Once they are closed it throws
    /// without running anything.
    template <class Operation>
    void run(std::string_view what, Operation&& operation) {
        if (waits_->ended()) throw_ended(what);
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
            throw BackendError(text("rank ", rank_, ": ", what, ": Gloo says: ", error.what()));
        }
    }

    /// Calls Gloo: inside run().
    void barrier(std::chrono::milliseconds timeout = longest_wait);

    /// This rank calls no more.
    void begin_to_close() noexcept { closing_ = true; }

    [[nodiscard]] bool has_ended() const noexcept;

    /// Blocks until all ranks are about to close their connections, or the job has failed: an early end would
    /// destroy what is still under way to another rank.
    void say_goodbye() noexcept;

    void wake() noexcept override { end("the job has failed"); }

  private:
    /// How long to wait for those who know the cause of a lost connection.
    static constexpr std::chrono::milliseconds patience{2000};
    static constexpr std::uint32_t goodbye_tag = 0xffff'ffff;
    /// Gloo numbers its collectives in the first byte, from 1.
    static constexpr std::uint64_t watch_slot = std::uint64_t{0x41} << 56;

    /// Gloo's context over pairs that have been connected already.
    class ConnectedContext final : public gloo::Context {
      public:
        ConnectedContext(std::shared_ptr<gloo::transport::Device> device,
                         std::shared_ptr<gloo::transport::Context> pairs);
    };

    explicit GlooMesh(const GlooMeshOptions& options)
        : rank_(options.rank), size_(options.size), job_state_(options.job_state) {}

    /// Waits a little for the job to fail, too: then the lost rank is known by its name.
    [[noreturn]] void throw_ended(std::string_view what) const;

    template <class Action>
    void for_others(Action&& action) const {
        for (int other = 0; other < size_; ++other) {
            if (other != rank_) action(other);
        }
    }

    void meet(const GlooMeshOptions& options);

    /// Their addresses, by rank.
    [[nodiscard]] std::string create_pairs(gloo::transport::Context& pairs) const;

    /// From here on end() can wake a thread that waits for a connection.
    void publish_for_end(std::shared_ptr<gloo::transport::Context> pairs);

    template <class Key>
    void await_others(Store& store, const Key& key, std::chrono::milliseconds timeout) const {
        constexpr std::chrono::milliseconds slice{200};
        std::vector<std::string> keys;
        for_others([&](int other) { keys.push_back(key(other)); });
        const Deadline deadline(timeout);
        while (true) {
            waits_->check();
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
        throw TimeoutError(text("rank ", rank_, ": connecting: after ", duration_text(timeout), " these of ",
                                size_, " ranks have not come: ", missing));
    }

    template <class Connect>
    void reach(const GlooPeerInfo& here, const GlooPeerInfo& there, int other, const Deadline& deadline,
               std::chrono::milliseconds timeout, Connect&& connect) const {
        try {
            connect();
        } catch (const gloo::Exception& error) {
            waits_->check();
            std::string message = text("cannot connect to ", there.label(other), " from ", here.address);
            if (deadline.passed()) message += text(" within ", duration_text(timeout));
            message += text(": ", without_source_line(error.what()));
            if (here.host != there.host) message += "; name the network interface between these hosts";
            if (deadline.passed()) throw TimeoutError(text("rank ", rank_, ": connecting: ", message));
            throw gloo::IoException(message);
        }
    }

    /// Gloo tells a lost connection only to those who wait for a message to begin. So a thread does that
    /// always, and ends all other waits.
    void watch_connections(gloo::transport::Context& pairs);

    void barrier(std::uint32_t tag, std::chrono::milliseconds timeout);

    /// Ends all waits, and closes all connections. The first cause stays.
    void end(std::string_view cause) noexcept;

    const int rank_;
    const int size_;
    const std::shared_ptr<JobState> job_state_;
    const std::shared_ptr<GlooCancellation> waits_ = std::make_shared<GlooCancellation>();
    std::mutex mutex_;
    std::shared_ptr<gloo::transport::Context> pairs_;
    std::shared_ptr<gloo::Context> context_;
    std::unique_ptr<gloo::transport::UnboundBuffer> from_anybody_;
    std::thread watch_;
    std::atomic<bool> closing_ = false;
    std::uint32_t tag_ = 0;
    std::atomic<std::uint64_t> messages_ = 0;
};

/// Keeps a closed mesh connected until all ranks have closed theirs. Owned by the thread that waits for that.
class GlooShutdown final : public WatchdogTask {
  public:
    static void begin(const std::shared_ptr<GlooMesh>& mesh, const std::shared_ptr<ControlPlane>& control);

    DPTK_INLINE void look() noexcept override;

    [[nodiscard]] DPTK_INLINE std::chrono::milliseconds interval() const noexcept override;

  private:
    GlooShutdown(std::shared_ptr<GlooMesh> mesh, std::shared_ptr<ControlPlane> control);

    std::shared_ptr<GlooMesh> mesh_;
    std::shared_ptr<ControlPlane> control_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/gloo/mesh.ipp"
#endif
