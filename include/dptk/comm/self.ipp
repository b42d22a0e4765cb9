#pragma once

#include "dptk/comm/self.hpp"

#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/health/job_state.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

[[noreturn]] DPTK_INLINE void refuse_message(std::string_view what, int peer) {
    throw ArgumentError(text("cannot ", what, " rank ", peer, ": the group has only one rank"));
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE void SelfTransport::send(const Buffer&, int to, int) {
    detail::refuse_message("send to", to);
}

DPTK_INLINE void SelfTransport::recv(const Buffer&, int from, int) {
    detail::refuse_message("recv from", from);
}

DPTK_INLINE std::unique_ptr<Transport> SelfTransport::duplicate() {
    return std::make_unique<SelfTransport>(*this);
}

DPTK_INLINE std::unique_ptr<Transport> SelfTransport::subgroup(std::span<const int>, std::string_view) {
    return duplicate();
}

DPTK_INLINE std::shared_ptr<detail::ControlPlane> SelfTransport::control() const {
    return detail::ControlPlane::make({.timeout = timeout_}, std::make_shared<detail::JobState>());
}

}  // namespace DPTK_NAMESPACE
