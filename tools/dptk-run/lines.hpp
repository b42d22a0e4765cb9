// Cuts a stream of bytes into lines.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace run {

/// A line ends with \n, \r\n, or a \r alone, by which programs show progress in place. One without an end is
/// cut at 64 KiB, so that no program can fill the memory.
class LineSplitter {
  public:
    static constexpr std::size_t max_line_bytes = std::size_t{1} << 16;

    /// Gets each line together with its end, where it has one.
    using Emit = std::function<void(std::string_view line)>;

    void add(std::string_view bytes, const Emit& emit);

    /// Hands out what has come since the last end of a line.
    void flush(const Emit& emit);

    [[nodiscard]] bool empty() const { return rest_.empty(); }

    /// Whether all that is kept is a line that ends with \r: the next byte may be its \n.
    [[nodiscard]] bool ends_with_return() const { return rest_.ends_with('\r'); }

  private:
    std::string rest_;
};

}  // namespace run
