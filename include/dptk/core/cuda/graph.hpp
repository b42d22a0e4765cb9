/// Work of a stream, captured once and launched many times as a whole.
#pragma once

#include <concepts>
#include <utility>

#include "dptk/core/cuda/error.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/stream_ref.hpp"

namespace dptk::cuda {

/// Owns an executable CUDA graph. What its work reads and writes must stay where it is as long as it is
/// launched.
class Graph {
  public:
    /// Calls `fn`, and puts what it gives the stream, and streams that it orders behind that and joins again,
    /// into a graph; nothing of it is done. Captures in CUDA's global mode: meanwhile no thread of the
    /// process may make calls that wait or allocate. Does not wait for the device. Where this throws, the
    /// stream is captured no longer, and can be used as before.
    ///
    /// Throws what `fn` does, ArgumentError for the default stream, and BackendError where the work cannot be
    /// captured.
    template <std::invocable Fn>
    [[nodiscard]] static Graph capture(StreamRef stream, Fn&& fn) {
        if (stream == StreamRef()) throw ArgumentError("the default stream cannot be captured into a graph");
        Capture capture(stream);
        std::forward<Fn>(fn)();
        return Graph(capture.end());
    }

    /// Does not wait for what has been launched, which is carried out all the same.
    ~Graph() {
        if (executable_ != nullptr) static_cast<void>(cudaGraphExecDestroy(executable_));
    }
    Graph(Graph&& other) noexcept : executable_(std::exchange(other.executable_, nullptr)) {}
    Graph& operator=(Graph&& other) noexcept {
        std::swap(executable_, other.executable_);
        return *this;
    }
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    /// Puts all of the work on a stream of the same device. Does not block.
    void launch(StreamRef stream) const {
        check(cudaGraphLaunch(executable_, stream.get()), "cudaGraphLaunch");
    }

  private:
    /// What was captured; not executable.
    class Template {
      public:
        explicit Template(cudaGraph_t graph) : graph_(graph) {}
        ~Template() {
            if (graph_ != nullptr) static_cast<void>(cudaGraphDestroy(graph_));
        }
        Template(Template&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
        Template& operator=(Template&&) = delete;
        Template(const Template&) = delete;
        Template& operator=(const Template&) = delete;

        [[nodiscard]] cudaGraph_t get() const noexcept { return graph_; }

      private:
        cudaGraph_t graph_;
    };

    /// From its making to end(), or to its own end, where what was captured is thrown away.
    class Capture {
      public:
        explicit Capture(StreamRef stream) : stream_(stream) {
            check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal),
                  "cudaStreamBeginCapture");
        }
        ~Capture() {
            if (ended_) return;
            cudaGraph_t graph = nullptr;
            static_cast<void>(cudaStreamEndCapture(stream_.get(), &graph));
            static_cast<void>(cudaGetLastError());  // of a capture that was no longer valid
            const Template thrown_away(graph);
        }
        Capture(const Capture&) = delete;
        Capture& operator=(const Capture&) = delete;

        [[nodiscard]] Template end() {
            ended_ = true;
            cudaGraph_t graph = nullptr;
            const cudaError_t status = cudaStreamEndCapture(stream_.get(), &graph);
            Template captured(graph);
            check(status, "cudaStreamEndCapture");
            return captured;
        }

      private:
        StreamRef stream_;
        bool ended_ = false;
    };

    explicit Graph(const Template& captured) {
        check(cudaGraphInstantiate(&executable_, captured.get(), 0), "cudaGraphInstantiate");
    }

    cudaGraphExec_t executable_ = nullptr;
};

}  // namespace dptk::cuda
