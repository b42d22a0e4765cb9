/// An executable CUDA graph: the work of a stream, captured once and launched many times as a whole.
#pragma once

#include <concepts>
#include <utility>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/error.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE::cuda {

/// Owns an executable CUDA graph. The memory that its work reads and writes must stay valid, at the same
/// address, until the last launch has been executed.
class Graph {
  public:
    /// Calls `fn` and captures the work that it enqueues on the stream into a graph, without executing it.
    /// Work on another stream is captured too if that stream waits for this stream, and this stream then
    /// waits for that work. Captures in CUDA's global mode: during the capture, no thread of the process may
    /// make CUDA calls that wait for the device or allocate memory. Does not wait for the device. If this
    /// function throws, the capture has ended, and the stream can be used as before.
    ///
    /// Throws what `fn` throws, ArgumentError for the default stream, and BackendError if the work cannot
    /// be captured.
    template <std::invocable Fn>
    [[nodiscard]] static Graph capture(StreamRef stream, Fn&& fn) {
        if (stream == StreamRef()) throw ArgumentError("the default stream cannot be captured into a graph");
        Capture capture(stream);
        std::forward<Fn>(fn)();
        return Graph(capture.end());
    }

    /// Does not wait for graphs that have been launched; they are still executed.
    ~Graph();
    Graph(Graph&& other) noexcept : executable_(std::exchange(other.executable_, nullptr)) {}
    Graph& operator=(Graph&& other) noexcept;
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    /// Enqueues all of the work on a stream of the same device. Does not block.
    void launch(StreamRef stream) const;

  private:
    /// A captured graph, not yet executable.
    class Template {
      public:
        explicit Template(cudaGraph_t graph) : graph_(graph) {}
        ~Template();
        Template(Template&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
        Template& operator=(Template&&) = delete;
        Template(const Template&) = delete;
        Template& operator=(const Template&) = delete;

        [[nodiscard]] cudaGraph_t get() const noexcept { return graph_; }

      private:
        cudaGraph_t graph_;
    };

    /// A stream capture. It lasts until end() returns the captured graph, or until destruction, which
    /// discards the graph.
    class Capture {
      public:
        explicit Capture(StreamRef stream);
        ~Capture();
        Capture(const Capture&) = delete;
        Capture& operator=(const Capture&) = delete;

        [[nodiscard]] Template end();

      private:
        StreamRef stream_;
        bool ended_ = false;
    };

    explicit Graph(const Template& captured);

    cudaGraphExec_t executable_ = nullptr;
};

}  // namespace DPTK_NAMESPACE::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/cuda/graph.ipp"
#endif
