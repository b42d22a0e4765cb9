#include "store_watch.hpp"

#include <dptk/control/elastic/membership_keys.hpp>
#include <dptk/control/process/background_thread.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

namespace run {

struct StoreWatch::State {
    std::shared_ptr<dptk::Store> store;
    std::mutex mutex = {};
    std::condition_variable changed = {};
    bool has_ended = false;
    Seen seen = {};
};

StoreWatch::StoreWatch(std::shared_ptr<dptk::Store> store, std::chrono::milliseconds heartbeat_timeout)
    : state_(new State{std::move(store)}) {
    // Within this time after a reply, the store has given up no member that it could not reach.
    const auto recent = std::min<std::chrono::milliseconds>(std::chrono::seconds(1), heartbeat_timeout / 2);
    dptk::detail::start_background_thread([state = state_, recent] { watch(*state, recent); }).detach();
}

StoreWatch::~StoreWatch() {
    {
        const std::lock_guard lock(state_->mutex);
        state_->has_ended = true;
    }
    state_->changed.notify_all();
}

StoreWatch::Seen StoreWatch::seen() const {
    const std::lock_guard lock(state_->mutex);
    return state_->seen;
}

void StoreWatch::watch(State& state, std::chrono::milliseconds recent) noexcept {
    using dptk::detail::MembershipKeys;
    using Clock = std::chrono::steady_clock;  // the store's host does not stop with this process
    constexpr std::chrono::milliseconds interval{50};
    Clock::time_point replied = Clock::now();
    while (true) {
        try {
            const Clock::time_point asked = Clock::now();
            std::string latest = state.store->find(MembershipKeys::latest).value_or("");
            std::string second = state.store->find(MembershipKeys::second).value_or("");
            replied = asked;
            std::unique_lock lock(state.mutex);
            state.seen.latest = std::move(latest);
            state.seen.second = std::move(second);
            if (state.changed.wait_for(lock, interval, [&] { return state.has_ended; })) return;
        } catch (const std::exception& error) {
            const std::lock_guard lock(state.mutex);
            state.seen.lost = error.what();
            state.seen.is_out_of_date = Clock::now() - replied > recent;
            return;
        }
    }
}

}  // namespace run
