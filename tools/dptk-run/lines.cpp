#include "lines.hpp"

#include <utility>

namespace run {

namespace {

/// The length of the first line including its end, or 0 if its end has not arrived.
std::size_t first_line(std::string_view bytes) {
    const std::size_t end = bytes.find_first_of("\r\n");
    if (end >= LineSplitter::max_line_bytes) {  // also if `end` is npos
        return bytes.size() < LineSplitter::max_line_bytes ? 0 : LineSplitter::max_line_bytes;
    }
    if (bytes[end] == '\n') return end + 1;
    if (end + 1 == bytes.size()) return 0;
    return end + (bytes[end + 1] == '\n' ? 2 : 1);
}

}  // namespace

void LineSplitter::add(std::string_view bytes, const Emit& emit) {
    rest_ += bytes;
    std::string_view open = rest_;
    while (const std::size_t length = first_line(open)) {
        emit(open.substr(0, length));
        open.remove_prefix(length);
    }
    rest_.erase(0, rest_.size() - open.size());
}

void LineSplitter::flush(const Emit& emit) {
    if (!rest_.empty()) emit(std::exchange(rest_, {}));
}

}  // namespace run
