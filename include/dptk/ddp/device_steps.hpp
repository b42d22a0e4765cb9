/// Steps of a training whose gradients are all in device memory: they are copied, summed and copied back in
/// streams of dptk's own, and the host waits for none of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dptk/comm/local_reduce.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/core/device_calls.hpp"
#include "dptk/core/device_lane.hpp"
#include "dptk/ddp/bucket_set.hpp"
#include "dptk/ddp/parameter_ref.hpp"
#include "dptk/ddp/step_header.hpp"

namespace dptk::detail {

class DeviceSteps {
  public:
    /// Null where not all of the parameters whose indices `order` has are on devices, and where the program
    /// has been built without dptk's kernels. `program`: the stream in which gradients are computed and used;
    /// the default stream of each device where there are several. Throws ArgumentError where it is another
    /// one then.
    [[nodiscard]] static std::unique_ptr<DeviceSteps> make(const std::vector<ParameterRef>& parameters,
                                                           std::span<const std::size_t> order,
                                                           StreamRef program) {
        const auto is_on_host = [&](std::size_t i) { return parameters[i].device.type == DeviceType::cpu; };
        if (order.empty() || std::ranges::any_of(order, is_on_host)) return nullptr;
        const LaneMaker make_lane = registered_lane_maker();
        if (make_lane == nullptr) return nullptr;
        std::unique_ptr<DeviceSteps> steps(new DeviceSteps);
        for (const ParameterRef& parameter : parameters) {  // in the order that all ranks have
            const int device = parameter.device.index;
            if (parameter.device.type == DeviceType::cpu || steps->find(device) != nullptr) continue;
            steps->lanes_.push_back({.device = device, .lane = make_lane(device, program), .words = {}});
        }
        if (steps->lanes_.size() > 1 && program != StreamRef())
            throw ArgumentError("a stream for a model that spans devices, which have streams of their own");
        return steps;
    }

    /// Whether this is a graph's.
    [[nodiscard]] bool is_captured() const { return lanes_.front().lane->is_captured(); }

    [[nodiscard]] bool has_begun() const noexcept { return has_begun_; }

    /// Tells the others' devices what this rank says of the step. Collective.
    void begin(ProcessGroup& group, const StepHeader::Own& own) {
        has_begun_ = true;
        works_.clear();
        const auto one_if = [](bool flag) { return flag ? 1.0 : 0.0; };
        const double words[] = {static_cast<double>(own.samples.value_or(0) + own.accumulated),
                                one_if(own.samples.has_value() && !own.is_shadow), one_if(!own.is_shadow),
                                one_if(own.has_problem)};
        for (auto& [device, lane, summed] : lanes_) {
            lane->follow_program();
            lane->write_words(words);
            summed =
                start(group, *lane,
                      {.verb = Verb::all_reduce, .input = lane->words(), .output = lane->words()}, nullptr);
        }
    }

    /// Takes the gradients of `samples` samples, whose mean each is, into sums, and sets them to zero.
    /// `takes(i)`: whether parameter i takes part.
    template <class Takes>
    void accumulate(const std::vector<ParameterRef>& parameters, std::size_t samples, Takes&& takes) {
        sums_.resize(parameters.size());
        for (Place& place : lanes_) place.lane->follow_program();
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            const ParameterRef& parameter = parameters[i];
            if (parameter.count == 0 || !takes(i)) continue;
            DeviceLane& lane = lane_on(parameter.device);
            const LaneCopy into{sum_of(lane, i, parameter), parameter.gradient};
            if (samples > 0) {
                lane.accumulate(std::span(&into, 1), static_cast<double>(samples), parameter.dtype);
            } else {
                zero(lane, {parameter.gradient, parameter.count, parameter.dtype, parameter.device});
            }
        }
        for (Place& place : lanes_) place.lane->lead_program();
    }

    /// Of the sums that no step has sent.
    void forget_sums() {
        for (const Sum& sum : sums_)
            if (sum.memory) zero(lane_on(sum.elements.device), sum.elements);
    }

    /// What a rank puts into a bucket.
    struct Load {
        struct Gradient {
            std::size_t parameter = 0;
            Buffer place;
            const void* elements = nullptr;
            /// Otherwise zeros stand for it.
            bool takes_part = true;
        };
        std::vector<Gradient> gradients;
        LaneWeight weight;
        /// The sums of micro-batches go with them.
        bool has_sums = false;
        /// Whether something is wrong here; in the bucket that carries the ranks' status.
        std::optional<bool> status;
    };

    /// Copies the load into the bucket behind what the program's stream has been given, and sums it over the
    /// ranks. Collective.
    void launch(ProcessGroup& group, const GradientBucket& bucket, std::size_t number, const Load& load) {
        Place& place = *find(bucket.gradients().device.index);
        DeviceLane& lane = *place.lane;
        lane.follow_program();
        std::exchange(place.words, Work()).wait(lane.stream());  // of which the weights are shares
        if (load.has_sums) {
            copy_in_sums(lane, load);
        } else {
            std::vector<LaneCopy> gradients;
            std::vector<LaneCopy> zeros;
            for (const Load::Gradient& gradient : load.gradients)
                (gradient.takes_part ? gradients : zeros).push_back({gradient.place, gradient.elements});
            lane.copy(gradients, load.weight);
            lane.copy(zeros, {.factor = 0});
        }
        if (load.status) lane.write_status(bucket.status_element(), *load.status);
        Collective call = bucket.all_reduce(ReduceOp::sum);
        call.bucket = static_cast<int>(number);
        works_.resize(number + 1);
        works_[number] = start(group, lane, call, bucket.memory());
    }

    /// Copies averages out of a bucket that was launched. Blocks where they go through the host.
    void copy_out(const GradientBucket& bucket, std::size_t number, std::span<const LaneCopy> averages) {
        DeviceLane& lane = lane_on(bucket.gradients().device);
        std::exchange(works_[number], Work()).wait(lane.stream());
        lane.copy(averages, {});
    }

    /// The program's streams go on behind the averages. `last` carries the ranks' status.
    void end(const GradientBucket& last) {
        const Buffer status = last.status_element();
        for (Place& place : lanes_) {
            std::exchange(place.words, Work()).wait(place.lane->stream());
            place.lane->judge(place.device == status.device.index ? status : status.at(nullptr));
            place.lane->lead_program();
        }
        has_begun_ = false;
    }

    /// Whether a step has come to a bad end, on all ranks alike: see DeviceLane.
    [[nodiscard]] bool was_bad(bool all) {
        bool any = false;
        for (Place& place : lanes_) any = place.lane->was_bad(all) || any;
        return any;
    }

  private:
    DeviceSteps() = default;

    /// Of a gradient, with its memory.
    [[nodiscard]] Buffer sum_of(DeviceLane& lane, std::size_t i, const ParameterRef& parameter) {
        Buffer& sum = sums_[i].elements;
        if (!sums_[i].memory) {
            sum = {nullptr, parameter.count, accumulation_dtype(parameter.dtype), parameter.device};
            sums_[i].memory = lane.allocate(sum.bytes());
            sum.data = sums_[i].memory.get();
        }
        return sum;
    }

    static void zero(DeviceLane& lane, const Buffer& elements) {
        const LaneCopy copy{elements, elements.data};
        lane.copy(std::span(&copy, 1), {.factor = 0});
    }

    /// This step's own gradients go to the sums first, and these into the bucket, which leaves them zero.
    void copy_in_sums(DeviceLane& lane, const Load& load) {
        for (const Load::Gradient& gradient : load.gradients) {
            const Sum& sum = sums_[gradient.parameter];
            if (!sum.memory) {
                zero(lane, gradient.place);
                continue;
            }
            if (gradient.takes_part && load.weight.factor > 0) {
                const LaneCopy own{sum.elements, gradient.elements};
                lane.accumulate(std::span(&own, 1), load.weight.factor, gradient.place.dtype);
            }
            const LaneCopy all{gradient.place, sum.elements.data};
            lane.copy(std::span(&all, 1), {.factor = 1, .is_share = true}, sum.elements.dtype);
            zero(lane, sum.elements);
        }
    }

    struct Place {
        int device = 0;
        std::unique_ptr<DeviceLane> lane;
        Work words;  // on their way
    };

    [[nodiscard]] Place* find(int device) {
        const auto found = std::ranges::find(lanes_, device, &Place::device);
        return found == lanes_.end() ? nullptr : &*found;
    }

    [[nodiscard]] DeviceLane& lane_on(Device device) { return *find(device.index)->lane; }

    /// Beside the lane, which comes behind it where somebody waits for it; in the lane where that goes into a
    /// graph. Collective.
    [[nodiscard]] static Work start(ProcessGroup& group, const DeviceLane& lane, Collective call,
                                    std::shared_ptr<const void> keep_alive) {
        call.stream = lane.stream();
        if (!lane.is_captured()) return group.channel().start(call, std::move(keep_alive));
        group.channel().run(call);
        return {};
    }

    /// Of a parameter's gradients, each times its samples.
    struct Sum {
        std::shared_ptr<void> memory;
        Buffer elements;
    };

    std::vector<Place> lanes_;
    std::vector<Work> works_;  // by bucket
    std::vector<Sum> sums_;    // by parameter
    bool has_begun_ = false;
};

}  // namespace dptk::detail
