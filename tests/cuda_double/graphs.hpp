// CUDA graphs of the test double: the operations that were enqueued on streams during a capture.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace cuda_double {

class Stream;

/// A capture, from cudaStreamBeginCapture to cudaStreamEndCapture.
class Capture {
  public:
    /// Creates the stream's operation for one launch of the graph.
    using Task = std::function<std::function<void()>()>;
    /// The number of tasks of each stream before a point.
    using Past = std::map<const Stream*, std::size_t>;

    explicit Capture(const Stream* origin) : origin_(origin) { past_[origin]; }

    /// Adds a task that the stream would have run.
    void add(const Stream* stream, Task task) {
        const std::lock_guard lock(mutex_);
        tasks_.push_back(std::move(task));
        past_[stream][stream] = tasks_.size();
    }

    [[nodiscard]] Past past(const Stream* stream) {
        const std::lock_guard lock(mutex_);
        return past_[stream];
    }

    /// Adds the stream to the capture, and orders it after `past`.
    void wait(const Stream* stream, const Past& past) {
        const std::lock_guard lock(mutex_);
        for (const auto& [other, tasks] : past) {
            std::size_t& known = past_[stream][other];
            known = std::max(known, tasks);
        }
    }

    /// Whether the end of the first stream is ordered after all work of the other streams.
    [[nodiscard]] bool is_joined() {
        const std::lock_guard lock(mutex_);
        const Past& end = past_[origin_];
        for (const auto& [stream, past] : past_) {
            const auto own = past.find(stream);
            if (stream == origin_ || own == past.end()) continue;
            const auto known = end.find(stream);
            if (known == end.end() || known->second < own->second) return false;
        }
        return true;
    }

    [[nodiscard]] const Stream* origin() const { return origin_; }
    [[nodiscard]] std::vector<Task> tasks() {
        const std::lock_guard lock(mutex_);
        return tasks_;
    }

  private:
    const Stream* origin_;
    std::mutex mutex_;
    std::vector<Task> tasks_;  // in the order of the calls
    std::map<const Stream*, Past> past_;
};

/// The number of streams that are being captured, all in the global mode.
inline std::atomic<int>& captures() {
    static std::atomic<int> count = 0;
    return count;
}

/// Records a problem if the call would break a capture of this or another thread.
void refuse_while_captured(const char* function);

}  // namespace cuda_double
