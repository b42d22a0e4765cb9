/// Remembers where a program keeps what belongs to a model and is no parameter: running means, counters.
#pragma once

#include <concepts>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/comm/buffer_lists.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// What `DistributedDataParallelOptions::buffers` is made from. Nothing here is collective.
class BufferSource {
  public:
    /// A range of contiguous ranges of any elements, or a tuple of such ranges, which must outlive this.
    /// Their addresses are read anew at each step; their number and sizes stay.
    template <MutableBufferList B>
        requires(!std::is_rvalue_reference_v<B &&> || BufferListOutlivesCall<B>) &&
                (!std::same_as<std::remove_cvref_t<B>, BufferSource>)
    explicit BufferSource(B&& list) : collect_(collector(std::forward<B>(list))) {}

    /// Of types that are known at run time alone: where they are, as often as it is asked.
    explicit BufferSource(std::function<std::vector<Buffer>()> collect);

    /// All buffers, always in the same order, with the addresses of this moment.
    [[nodiscard]] std::vector<Buffer> collect() const { return collect_(); }

  private:
    template <class B>
    [[nodiscard]] static std::function<std::vector<Buffer>()> collector(B&& list) {
        if constexpr (std::is_lvalue_reference_v<B>) {
            return [&list] { return detail::erase_buffers(list).buffers; };
        } else {
            return [list = std::forward<B>(list)]() mutable { return detail::erase_buffers(list).buffers; };
        }
    }

    std::function<std::vector<Buffer>()> collect_;
};

namespace detail {

[[nodiscard]] bool same_shape(const Buffer& a, const Buffer& b) noexcept;

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/buffer_source.ipp"
#endif
