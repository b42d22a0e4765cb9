/// EngineOwner and PurposeScope, for headers that need no complete Engine.
#pragma once

#include <cstdint>
#include <memory>

#include "dptk/control/health/call_tracker.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

class Engine;

/// Closes an engine that its owner no longer needs. Operations in flight may keep the engine itself alive.
struct EngineCloser {
    void operator()(Engine* engine) const noexcept;
};

/// The only owner of an engine.
using EngineOwner = std::unique_ptr<Engine, EngineCloser>;

/// Sets the purpose of an engine's calls as long as the scope exists, or until the next purpose is set.
class PurposeScope {
  public:
    enum class End : std::uint8_t { resets, keeps };

    PurposeScope(Engine& engine, const CallPurpose& purpose, End end = End::resets);
    ~PurposeScope();
    PurposeScope(const PurposeScope&) = delete;
    PurposeScope& operator=(const PurposeScope&) = delete;

  private:
    Engine* engine_;
};

}  // namespace DPTK_NAMESPACE::detail
