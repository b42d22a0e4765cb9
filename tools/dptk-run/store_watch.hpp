// Watches the first store of an elastic job from another host, on a background thread: dptk-run asks it
// often, and must not wait for a host that is out of reach each time.
#pragma once

#include <dptk/control/store/store.hpp>

#include <chrono>
#include <memory>
#include <string>

namespace run {

class StoreWatch {
  public:
    struct Seen {
        std::string latest;  ///< the last generation, as text
        std::string second;  ///< the address of the second store; empty as long as no host serves one
        std::string lost;    ///< why the store is lost; empty as long as it is not
        /// Whether it is lost, and had not replied for a while, so that it may have formed a later
        /// generation.
        bool is_out_of_date = false;
    };

    /// `store` is for the thread alone.
    StoreWatch(std::shared_ptr<dptk::Store> store, std::chrono::milliseconds heartbeat_timeout);
    StoreWatch(const StoreWatch&) = delete;
    StoreWatch& operator=(const StoreWatch&) = delete;
    ~StoreWatch();

    [[nodiscard]] Seen seen() const;

  private:
    struct State;

    static void watch(State& state, std::chrono::milliseconds recent) noexcept;

    std::shared_ptr<State> state_;  // the thread's as well, since it may wait for a reply
};

}  // namespace run
