#pragma once

#include "dptk/ddp/detail/device_steps.hpp"

#include <limits>
#include <span>
#include <utility>

#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/core/detail/device_calls.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/log.hpp"
#include "dptk/core/trace.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE DeviceSteps::DeviceSteps(ProcessGroup& group, const ModelParameters& parameters,
                                     BucketSet& buckets, const DistributedDataParallelOptions& options,
                                     DeviceLanes lanes, bool is_own)
    : GradientSteps(group, parameters, buckets, options),
      lanes_(std::move(lanes)),
      is_own_(is_own),
      words_(lanes_.size()),
      buffers_(lanes_.size()),
      for_hooks_(lanes_.size()),
      sums_(parameters.size()),
      kept_(parameters.size()),
      is_kept_(parameters.size()) {}

DPTK_INLINE DeviceSteps::~DeviceSteps() {
    const bool is_in_step = has_begun_ || std::uncaught_exceptions() > uncaught_exceptions_;
    if (is_in_step || group_.engine().control()->job_state()->failed()) return;
    try {
        if (!is_captured() && has_failed_step(true))
            log(LogLevel::error, group_.rank(),
                text("the last device step failed",
                     last_.problem.empty() ? std::string(" on another rank") : ": " + last_.problem));
    } catch (const std::exception& error) {
        log(LogLevel::error, group_.rank(), error.what());
    }
}

DPTK_INLINE void DeviceSteps::set_hook(std::shared_ptr<CommHook> hook) {
    has_repeated_ = false;
    hook_.reset();
    if (!hook) return;
    abort_job_on_error([&] {
        for (std::size_t n = 0; n < lanes_.size(); ++n)
            if (!for_hooks_[n].memory) for_hooks_[n] = allocate(lanes_[n], 2, DType::f64);
    });
    hook_ = std::make_unique<HookRunner>(group_, std::move(hook), is_own_);
}

DPTK_INLINE void DeviceSteps::check_capturable() const {
    if (has_repeated_ && (!hook_ || hook_->hook().is_capturable())) return;
    throw ArgumentError(text("rank ", group_.rank(), ": cannot capture a step into a CUDA graph: first run ",
                             "a step without capture, with the same buckets and a capturable hook"));
}

DPTK_INLINE void DeviceSteps::accumulate(std::size_t samples) {
    abort_job_on_error([&] {
        lanes_.wait_for_user_stream();
        for (std::size_t b = 0; b < buckets_.size(); ++b) accumulate_bucket(b, micro_batch_weight(samples));
        lanes_.make_user_stream_wait();
    });
    note_accumulated(samples);
}

DPTK_INLINE void DeviceSteps::discard_sums() {
    GradientSteps::discard_sums();
    abort_job_on_error([&] {
        for (const OwnedBuffer& sum : sums_)
            if (sum.memory) zero(lanes_.on(sum.elements.device), sum.elements);
    });
}

DPTK_INLINE void DeviceSteps::begin(const LocalStep& own) {
    has_begun_ = true;
    repeats_ = !hook_ || hook_->hook().is_capturable();
    const auto one_if = [](bool flag) { return flag ? 1.0 : 0.0; };
    const double words[] = {static_cast<double>(own.samples.value_or(0) + accumulated_samples()),
                            one_if(own.samples.has_value() && !own.is_shadow), one_if(!own.is_shadow),
                            one_if(!own.problem.empty())};
    abort_job_on_error([&] {
        for (std::size_t n = 0; n < lanes_.size(); ++n) {
            lanes_[n].wait_for_user_stream();
            lanes_[n].write_words(words);
            words_[n] = start_sum(lanes_[n], lanes_[n].words());
        }
    });
}

DPTK_INLINE bool DeviceSteps::may_proceed(LocalStep& own) {
    if (!has_begun_) begin(own);
    return true;
}

DPTK_INLINE void DeviceSteps::send(const ModelBuffers& buffers, int root, const LocalStep& own) {
    abort_job_on_error([&] {
        for (std::size_t n = 0; n < lanes_.size(); ++n) send_on_lane(n, buffers, root, own);
        lanes_.make_user_stream_wait();
    });
}

DPTK_INLINE bool DeviceSteps::finish(LocalStep& own, const UnusedParameters& unused, StepClock& clock) {
    abort_job_on_error([&] {
        for (std::size_t b = 0; b < buckets_.size(); ++b) copy_out(b, own, unused);
        record_step_status();
    });
    GradientSteps::discard_sums();  // copy_in_sums() has set the memory of the sums to zero
    const auto now = trace::Clock::now();
    for (std::size_t b = 0; b < buckets_.size(); ++b)
        clock.record_transfer(b, buckets_[b].gradients().bytes(), {now, now});
    if (is_captured()) return true;  // a graph's steps are checked after it is launched
    has_repeated_ = repeats_;
    const LocalStep before = std::exchange(last_, own);
    return status_ok(own, before, false);
}

DPTK_INLINE bool DeviceSteps::status_ok(LocalStep& own) {
    return status_ok(own, std::exchange(last_, {}), true);
}

DPTK_INLINE void DeviceSteps::reset() {
    GradientSteps::reset();
    has_begun_ = false;
    works_.assign(buckets_.size(), Work());
    is_kept_.assign(parameters_.size(), false);
}

DPTK_INLINE void DeviceSteps::copy(DeviceLane& lane, const LaneCopy& tensor, const LaneWeight& weight,
                                   DType from) {
    lane.copy(std::span(&tensor, 1), weight, from);
}

DPTK_INLINE void DeviceSteps::zero(DeviceLane& lane, const Buffer& elements) {
    copy(lane, {elements, elements.data}, {.factor = 0}, elements.dtype);
}

DPTK_INLINE void DeviceSteps::accumulate_bucket(std::size_t b, double weight) {
    const DType dtype = gradient_dtype(b);
    DeviceLane& lane = lanes_.on(buckets_[b].gradients().device);
    std::vector<LaneCopy> to_sums;
    std::vector<LaneCopy> zeros;
    for (const std::size_t i : buckets_[b].indices()) {
        const ParameterRef& parameter = parameters_[i];
        if (parameter.gradient == nullptr) continue;
        if (weight == 0) {
            zeros.push_back({parameter.gradient_buffer(), parameter.gradient});
            continue;
        }
        if (!sums_[i].memory) sums_[i] = allocate(lane, parameter.count, accumulation_dtype(dtype));
        to_sums.push_back({sums_[i].elements, parameter.gradient});
    }
    lane.accumulate(to_sums, weight, dtype);
    lane.copy(zeros, {.factor = 0});
}

DPTK_INLINE void DeviceSteps::copy_in_sums(DeviceLane& lane, std::size_t b, const LocalStep& own,
                                           const std::vector<bool>& takes_part) {
    const DType dtype = gradient_dtype(b);
    const std::size_t samples = own.samples.value_or(0);
    keep_gradients(lane, b, own, takes_part);
    std::vector<LaneCopy> to_sums;
    std::vector<LaneCopy> sums;
    std::vector<LaneCopy> sent;  // sums that were sent, to be set to zero
    std::vector<LaneCopy> gradients;
    std::vector<LaneCopy> zeros;
    const std::vector<std::size_t>& indices = buckets_[b].indices();
    for (std::size_t position = 0; position < indices.size(); ++position) {
        const ParameterRef& parameter = parameters_[indices[position]];
        const Buffer place = buckets_[b].gradient(position, parameter.count);
        const OwnedBuffer& sum = sums_[indices[position]];
        const bool has_own = takes_part[position] && samples > 0;
        if (!sum.memory) {
            (has_own ? gradients : zeros).push_back({place, parameter.gradient});
            continue;
        }
        if (has_own) to_sums.push_back({sum.elements, parameter.gradient});
        sums.push_back({place, sum.elements.data});
        sent.push_back({sum.elements, sum.elements.data});
    }
    lane.accumulate(to_sums, micro_batch_weight(samples), dtype);
    LaneWeight sum_weight{.factor = 1};
    if (!sums_samples()) sum_weight.divisor = lane.samples_sum();
    lane.copy(sums, sum_weight, accumulation_dtype(dtype));
    lane.copy(sent, {.factor = 0});
    lane.copy(gradients, copy_weight(lane, own), dtype);
    lane.copy(zeros, {.factor = 0});
}

DPTK_INLINE DType DeviceSteps::gradient_dtype(std::size_t b) const {
    return parameters_[buckets_[b].indices().front()].gradient_buffer().dtype;
}

DPTK_INLINE void DeviceSteps::send_on_lane(std::size_t n, const ModelBuffers& buffers, int root,
                                           const LocalStep& own) {
    DeviceLane& lane = lanes_[n];
    const auto as_bytes = [](Buffer buffer) {
        return Buffer{buffer.data, buffer.bytes(), DType::u8, buffer.device};
    };
    constexpr std::size_t alignment = 64;
    const auto place_of = [](const Buffer& bytes) {
        return (bytes.count + alignment - 1) / alignment * alignment;
    };
    std::size_t all = 0;
    for (const Buffer& buffer : buffers.buffers())
        if (buffer.device == lane.device()) all += place_of(as_bytes(buffer));
    if (all == 0) return;
    if (!buffers_[n].memory) buffers_[n] = allocate(lane, all, DType::u8);
    std::vector<LaneCopy> in;
    std::vector<LaneCopy> out;
    std::size_t first = 0;
    for (const Buffer& buffer : buffers.buffers()) {
        if (buffer.device != lane.device()) continue;
        const Buffer bytes = as_bytes(buffer);
        const Buffer place = buffers_[n].elements.slice(first, bytes.count);
        in.push_back({place, bytes.data});
        out.push_back({bytes, place.data});
        first += place_of(bytes);
    }
    lane.wait_for_user_stream();
    const bool is_root = group_.rank() == root;
    if (is_root && own.has_buffers) lane.copy(in, {});
    const Buffer sent = buffers_[n].elements;
    start(lane, {.verb = Verb::broadcast, .input = sent, .output = sent, .root = root}, buffers_[n].memory)
        .wait(lane.stream());
    if (!is_root && own.has_buffers) lane.copy(out, {});
}

DPTK_INLINE void DeviceSteps::launch_bucket(std::size_t b, const LocalStep& own,
                                            const std::vector<bool>& takes_part) {
    abort_job_on_error([&] {
        const trace::Span span("copy in");
        const std::size_t n = lanes_.number_of(buckets_[b].gradients().device);
        lanes_[n].wait_for_user_stream();
        // gradients are weighted by own samples / samples of all ranks: words_ contains the divisor
        std::exchange(words_[n], Work()).wait(lanes_[n].stream());
        if (has_accumulated()) {
            copy_in_sums(lanes_[n], b, own, takes_part);
        } else {
            copy_in(lanes_[n], b, own, takes_part);
        }
        if (hook_) {
            run_hook(n, b, own);
        } else {
            sum_bucket(lanes_[n], b, own);
        }
    });
}

DPTK_INLINE void DeviceSteps::copy_in(DeviceLane& lane, std::size_t b, const LocalStep& own,
                                      const std::vector<bool>& takes_part) {
    std::vector<LaneCopy> gradients;
    std::vector<LaneCopy> zeros;
    const std::vector<std::size_t>& indices = buckets_[b].indices();
    for (std::size_t position = 0; position < indices.size(); ++position) {
        const ParameterRef& parameter = parameters_[indices[position]];
        const Buffer place = buckets_[b].gradient(position, parameter.count);
        (takes_part[position] ? gradients : zeros).push_back({place, parameter.gradient});
    }
    keep_gradients(lane, b, own, takes_part);
    lane.copy(gradients, copy_weight(lane, own), gradient_dtype(b));
    lane.copy(zeros, {.factor = 0});
}

DPTK_INLINE void DeviceSteps::keep_gradients(DeviceLane& lane, std::size_t b, const LocalStep& own,
                                             const std::vector<bool>& takes_part) {
    if (!may_keep_gradients(own)) return;
    std::vector<LaneCopy> copies;
    const std::vector<std::size_t>& indices = buckets_[b].indices();
    for (std::size_t position = 0; position < indices.size(); ++position) {
        const std::size_t i = indices[position];
        const Buffer place = buckets_[b].gradient(position, parameters_[i].count);
        if (takes_part[position] || place.count == 0 || place.data != parameters_[i].gradient) continue;
        if (!kept_[i].memory) kept_[i] = allocate(lane, place.count, place.dtype);
        copies.push_back({kept_[i].elements, place.data});
        is_kept_[i] = true;
    }
    lane.copy(copies, {});
}

DPTK_INLINE LaneWeight DeviceSteps::weight_of(DeviceLane& lane, const LocalStep& own,
                                              std::size_t samples) const {
    if (own.samples && !sums_samples())
        return {.factor = static_cast<double>(samples), .divisor = lane.samples_sum()};
    const bool has_samples = !own.is_shadow && !(own.samples && samples == 0);
    if (sums_samples() && !has_samples) return {.factor = 0};
    return {.factor = 1.0 / averaging_ranks()};
}

DPTK_INLINE LaneWeight DeviceSteps::copy_weight(DeviceLane& lane, const LocalStep& own) const {
    if (sums_samples()) return {.factor = own.samples == std::size_t{0} ? 0.0 : 1.0};
    return weight_of(lane, own, own.samples.value_or(0));
}

DPTK_INLINE void DeviceSteps::sum_bucket(DeviceLane& lane, std::size_t b, const LocalStep& own) {
    if (is_last(b)) lane.write(buckets_[b].status_element(), status_of(own));
    Collective call = buckets_[b].all_reduce(ReduceOp::sum);
    call.bucket = static_cast<int>(b);
    works_[b] = start(lane, call, buckets_[b].memory());
}

DPTK_INLINE void DeviceSteps::run_hook(std::size_t n, std::size_t b, const LocalStep& own) {
    DeviceLane& lane = lanes_[n];
    const Buffer weight = for_hooks_[n].elements.slice(0, 1);
    const LaneWeight of_all = weight_of(lane, own, own.samples.value_or(0) + accumulated_samples());
    lane.write(weight, of_all.factor);
    copy(lane, {weight, weight.data}, {.factor = 1, .divisor = of_all.divisor}, weight.dtype);
    HookBucket bucket = hook_bucket(buckets_, b, parameters_.refs());
    bucket.step = own.number;
    bucket.weight = std::numeric_limits<double>::quiet_NaN();
    bucket.device_weight = weight;
    bucket.stream = lane.stream();
    bucket.lane = lanes_.shared(n);
    {
        const CurrentDevice on(lane.device().index);
        hook_->run(bucket);
    }
    if (!is_last(b)) return;
    lane.write(own_status(n), status_of(own));
    works_[b] = start_sum(lane, own_status(n));
}

DPTK_INLINE void DeviceSteps::copy_out(std::size_t b, const LocalStep& own, const UnusedParameters& unused) {
    const trace::Span span("copy out");
    DeviceLane& lane = lanes_.on(buckets_[b].gradients().device);
    std::exchange(works_[b], Work()).wait(lane.stream());
    const bool is_read_in_bucket = buckets_[b].gradients().dtype != gradient_dtype(b);
    if (!own.has_addresses || is_read_in_bucket) return;
    std::vector<LaneCopy> averages;
    const std::vector<std::size_t>& indices = buckets_[b].indices();
    for (std::size_t position = 0; position < indices.size(); ++position) {
        const std::size_t i = indices[position];
        const ParameterRef& parameter = parameters_[i];
        if (own.is_shadow || unused[i]) {
            if (is_kept_[i])
                averages.push_back({kept_[i].elements.at(parameter.gradient), kept_[i].elements.data});
            continue;
        }
        const Buffer average = buckets_[b].gradient(position, parameter.count);
        averages.push_back({average.at(parameter.gradient), average.data});
    }
    lane.copy(averages, {});
}

DPTK_INLINE void DeviceSteps::record_step_status() {
    const std::size_t with_status = lanes_.number_of(buckets_[buckets_.size() - 1].gradients().device);
    for (std::size_t n = 0; n < lanes_.size(); ++n) {
        std::exchange(words_[n], Work()).wait(lanes_[n].stream());
        Buffer status = hook_ ? own_status(with_status) : buckets_[buckets_.size() - 1].status_element();
        if (n != with_status) status.data = nullptr;
        lanes_[n].record_step_status(status);
        lanes_[n].make_user_stream_wait();
    }
}

DPTK_INLINE bool DeviceSteps::has_failed_step(bool all) {
    bool any = false;
    for (std::size_t n = 0; n < lanes_.size(); ++n) any = lanes_[n].has_failed_step(all) || any;
    return any;
}

DPTK_INLINE bool DeviceSteps::status_ok(LocalStep& own, const LocalStep& step, bool all) {
    bool is_bad = false;
    abort_job_on_error([&] { is_bad = has_failed_step(all); });
    group_.engine().control()->job_state()->check();  // an aborted collective looks completed
    if (!is_bad) return true;
    own = step;
    if (!any_problem(own)) own.note_count();
    return false;
}

DPTK_INLINE Work DeviceSteps::start_sum(const DeviceLane& lane, const Buffer& elements) {
    return start(lane, {.verb = Verb::all_reduce, .input = elements, .output = elements}, nullptr);
}

DPTK_INLINE Work DeviceSteps::start(const DeviceLane& lane, Collective call,
                                    std::shared_ptr<const void> keep_alive) {
    call.stream = lane.stream();
    if (!lane.is_captured()) {
        Work work = group_.engine().start(call, std::move(keep_alive));
        work.detach();  // dptk's own memory, which is freed in stream order
        return work;
    }
    group_.engine().run(call);
    return {};
}

}  // namespace DPTK_NAMESPACE::detail
