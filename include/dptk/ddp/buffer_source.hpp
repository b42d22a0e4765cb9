/// Model buffers, the state of a model besides its parameters, such as BatchNorm's running statistics:
/// BufferSource re-reads their addresses.
#pragma once

#include <concepts>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/comm/buffer_lists.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// Gives access to the buffers of a model, for DistributedDataParallelOptions::buffers. No call is
/// collective.
class BufferSource {
  public:
    /// Accepts a range or a tuple of contiguous ranges of any element type. A variable is kept by reference
    /// and must outlive this object; a temporary list of views or references is kept by value, and what
    /// they refer to must outlive this object. Addresses are re-read at each step; the number of ranges and
    /// their sizes must not change.
    template <MutableBufferList B>
        requires(!std::is_rvalue_reference_v<B &&> || BufferListOutlivesCall<B>) &&
                (!std::same_as<std::remove_cvref_t<B>, BufferSource>)
    explicit BufferSource(B&& list) : read_(reader(std::forward<B>(list))) {}

    /// Accepts a function that returns the buffers, for types that are known only at run time. It is called
    /// whenever the addresses are needed.
    explicit BufferSource(std::function<std::vector<Buffer>()> collect);

    /// Returns all buffers with their current addresses, always in the same order.
    [[nodiscard]] std::vector<Buffer> collect() const;

    /// Accepts a function that fills a list with the buffers, and may reuse the list's memory.
    [[nodiscard]] static BufferSource of_function(std::function<void(std::vector<Buffer>& buffers)> read);

    /// Does what collect() does, in memory that is reused.
    void read(std::vector<Buffer>& buffers) const { read_(buffers); }

  private:
    using Read = std::function<void(std::vector<Buffer>& buffers)>;

    template <class B>
    [[nodiscard]] static Read reader(B&& list) {
        if constexpr (std::is_lvalue_reference_v<B>) {
            return [&list](std::vector<Buffer>& buffers) { read_list(list, buffers); };
        } else {
            return [list = std::forward<B>(list)](std::vector<Buffer>& buffers) mutable {
                read_list(list, buffers);
            };
        }
    }

    template <class B>
    static void read_list(B& list, std::vector<Buffer>& buffers) {
        buffers.clear();
        detail::for_each_range(list, [&](auto&& range) { buffers.push_back(detail::buffer_of(range)); });
    }

    Read read_;
};

namespace detail {

/// Collects the buffers of a model: the `data` of what its for_each_buffer() passes.
struct BufferCollector {
    std::vector<Buffer>& all;

    template <class Named>
        requires std::same_as<std::remove_cvref_t<decltype(Named::data)>, Buffer>
    void operator()(const Named& named) const {
        all.push_back(named.data);
    }
};

/// Returns the buffers of a model with a for_each_buffer(sink), which calls sink(named) with objects whose
/// `data` is a Buffer, as nn::Network does. Nullopt for other models. A model is kept by reference.
template <class Model>
[[nodiscard]] std::optional<BufferSource> buffers_of_model(Model& model) {
    if constexpr (requires(BufferCollector collector) { model.for_each_buffer(collector); }) {
        const BufferSource source = BufferSource::of_function([&model](std::vector<Buffer>& buffers) {
            buffers.clear();
            model.for_each_buffer(BufferCollector{buffers});
        });
        if (!source.collect().empty()) return source;
    }
    return std::nullopt;
}

[[nodiscard]] bool same_shape(const Buffer& a, const Buffer& b) noexcept;

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/buffer_source.ipp"
#endif
