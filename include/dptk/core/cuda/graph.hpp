/// Work of a stream, captured once and launched many times as a whole.
#pragma once

#include <concepts>
#include <utility>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/error.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE::cuda {

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
    ~Graph();
    Graph(Graph&& other) noexcept : executable_(std::exchange(other.executable_, nullptr)) {}
    Graph& operator=(Graph&& other) noexcept;
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    /// Puts all of the work on a stream of the same device. Does not block.
    void launch(StreamRef stream) const;

  private:
    /// What was captured; not executable.
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

    /// From its making to end(), or to its own end, where what was captured is thrown away.
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
