/// The collective verbs over an engine that this object does not own.
#pragma once

#include "dptk/comm/engine/engine_owner.hpp"
#include "dptk/comm/verbs.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

class EngineVerbs : public CollectiveVerbs<EngineVerbs> {
  public:
    explicit EngineVerbs(Engine& engine) : engine_(engine) {}

    [[nodiscard]] Engine& engine() noexcept { return engine_; }
    [[nodiscard]] const Engine& engine() const noexcept { return engine_; }

  private:
    Engine& engine_;
};

}  // namespace DPTK_NAMESPACE::detail
