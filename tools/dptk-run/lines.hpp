// Splits a stream of bytes into lines.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace run {

/// Splits a stream of bytes into lines. A line ends with \n, with \r\n, or with a single \r, which progress
/// bars print. A line without an end is cut after 64 KiB, to bound the memory.
class LineSplitter {
  public:
    static constexpr std::size_t max_line_bytes = std::size_t{1} << 16;

    /// Is called with each line, including its end if it has one.
    using Emit = std::function<void(std::string_view line)>;

    void add(std::string_view bytes, const Emit& emit);

    /// Emits the bytes that have arrived since the last end of a line.
    void flush(const Emit& emit);

    [[nodiscard]] bool empty() const { return rest_.empty(); }

    /// Whether the stored bytes end with \r: the next byte may be the \n of the same line.
    [[nodiscard]] bool ends_with_return() const { return rest_.ends_with('\r'); }

  private:
    std::string rest_;
};

}  // namespace run
