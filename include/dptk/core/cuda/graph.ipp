#pragma once

#include "dptk/core/cuda/graph.hpp"

namespace DPTK_NAMESPACE::cuda {

DPTK_INLINE Graph::~Graph() {
    if (executable_ != nullptr) static_cast<void>(cudaGraphExecDestroy(executable_));
}

DPTK_INLINE Graph& Graph::operator=(Graph&& other) noexcept {
    std::swap(executable_, other.executable_);
    return *this;
}

DPTK_INLINE void Graph::launch(StreamRef stream) const {
    check(cudaGraphLaunch(executable_, stream.get()), "cudaGraphLaunch");
}

DPTK_INLINE Graph::Template::~Template() {
    if (graph_ != nullptr) static_cast<void>(cudaGraphDestroy(graph_));
}

DPTK_INLINE Graph::Capture::Capture(StreamRef stream) : stream_(stream) {
    check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
}

DPTK_INLINE Graph::Capture::~Capture() {
    if (ended_) return;
    cudaGraph_t graph = nullptr;
    static_cast<void>(cudaStreamEndCapture(stream_.get(), &graph));
    static_cast<void>(cudaGetLastError());  // clears the error of an invalidated capture
    const Template discarded(graph);
}

DPTK_INLINE Graph::Template Graph::Capture::end() {
    ended_ = true;
    cudaGraph_t graph = nullptr;
    const cudaError_t status = cudaStreamEndCapture(stream_.get(), &graph);
    Template captured(graph);
    check(status, "cudaStreamEndCapture");
    return captured;
}

DPTK_INLINE Graph::Graph(const Template& captured) {
    check(cudaGraphInstantiate(&executable_, captured.get(), 0), "cudaGraphInstantiate");
}

}  // namespace DPTK_NAMESPACE::cuda
