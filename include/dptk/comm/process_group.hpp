/// ProcessGroup is a communicator whose transport is known only at run time. init_process_group and
/// launch_threads give one, any communicator moves into one, and everything above comm/ takes a
/// ProcessGroup&.
#pragma once

#include <memory>
#include <utility>

#include "dptk/comm/communicator.hpp"

namespace dptk {

class ProcessGroup : public CollectiveVerbs<ProcessGroup> {
  public:
    /// The group takes the communicator over.
    template <Transport T>
    ProcessGroup(BasicCommunicator<T>&& communicator)  // NOLINT(google-explicit-constructor): a widening
        : ProcessGroup(std::move(communicator).release()) {}

    explicit ProcessGroup(std::unique_ptr<Channel> channel) : channel_(std::move(channel)) {}

    /// An independent group over the same ranks, for work in the background: its calls never meet this
    /// group's. Collective. Throws ArgumentError where the transport has no duplicate().
    [[nodiscard]] ProcessGroup duplicate() {
        std::unique_ptr<Channel> copy = channel_->duplicate();
        if (!copy) throw ArgumentError("the transport " + backend() + " has no duplicate()");
        return ProcessGroup(std::move(copy));
    }

    [[nodiscard]] Channel& channel() { return *channel_; }
    [[nodiscard]] const Channel& channel() const { return *channel_; }

  private:
    std::unique_ptr<Channel> channel_;
};

}  // namespace dptk
