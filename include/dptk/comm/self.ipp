#pragma once

#include "dptk/comm/self.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE void SelfTransport::all_gather_uneven(const Buffer& input, const Buffer& output,
                                                  std::span<const std::size_t>) {
    algorithms::place(output, input);
}

DPTK_INLINE void SelfTransport::reduce_scatter(const Buffer& input, const Buffer& output, const Reduction&) {
    algorithms::place(output, input);
}

DPTK_INLINE void SelfTransport::refuse(std::string_view what, int peer) {
    throw ArgumentError(detail::text("cannot ", what, " rank ", peer, ": the group has only one rank"));
}

}  // namespace DPTK_NAMESPACE
