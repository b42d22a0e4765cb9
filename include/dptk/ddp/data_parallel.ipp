#pragma once

#include "dptk/ddp/data_parallel.hpp"

#include <algorithm>
#include <string>

#include "dptk/comm/agreement.hpp"
#include "dptk/core/detail/device_calls.hpp"
#include "dptk/core/detail/error_access.hpp"
#include "dptk/core/detail/thread_kind.hpp"
#include "dptk/ddp/detail/gradient_bucket.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE ModelReplica::ModelReplica(ParameterSource source) : parameters_(std::move(source)) {}

DPTK_INLINE Work ModelReplica::start(std::function<void()> action) {
    return Work(thread_.start([action = std::move(action)] {
        is_background_thread = false;  // the program's own code also runs on this thread
        action();
        return -1;
    }));
}

DPTK_INLINE void ModelReplica::join(const ThreadJob& job, int number) {
    group_.emplace(ThreadCommunicator(job.transport(number)));
    group_->engine().control()->fail_job_on_error([&] { compare(); });
}

DPTK_INLINE void ModelReplica::receive_values() {
    wait_for_device();
    group_->engine().control()->fail_job_on_error([&] { parameters_.broadcast_values(*group_, 0); });
}

DPTK_INLINE void ModelReplica::reduce(std::size_t samples, std::size_t all) {
    wait_for_device();
    group_->engine().control()->fail_job_on_error([&] { reduce_gradients(samples, all); });
}

DPTK_INLINE void ModelReplica::compare() {
    std::string problem, its_parameter;
    try {
        parameters_.find();
        require_lasting_gradients(parameters_.refs(), "DataParallel");
        if (is_on_device()) device_calls().set_device(device().index);
        for (const ParameterRef& parameter : parameters_.refs()) {
            if (parameter.device != device())
                throw ArgumentError(
                    text("parameter ", parameter.name, " is on ", device_name(parameter.device),
                         ", but the first parameter is on ", device_name(device())),
                    {.parameter = parameter.name});
        }
    } catch (const std::exception& error) {  // may come from the program's own for_each_parameter
        problem = error.what();
        its_parameter = parameter_of(error);
    }
    check_no_problem<ArgumentError>(*group_, problem, its_parameter);
    const char* const place = is_on_device() ? "parameters on a device\n" : "parameters in host memory\n";
    check_equal_tables(*group_, "replicas", place + parameters_.table());
    if (is_on_device()) static_cast<void>(group_->engine().allocate_on_device(1, device().index));
}

DPTK_INLINE void ModelReplica::reduce_gradients(std::size_t samples, std::size_t all) {
    Reduction average = ReduceOp::avg;
    if (is_on_device() || samples * static_cast<std::size_t>(group_->size()) != all) {
        average = ReduceOp::sum;
        average.weight = static_cast<double>(samples) / static_cast<double>(all);
    }
    for (const std::size_t i : parameters_.sent()) {
        const Buffer gradient = parameters_[i].gradient_buffer();
        if (samples == 0) copy_scaled(gradient, gradient, 0);
        ModelParameters::run(
            *group_, {.verb = Verb::reduce, .input = gradient, .output = gradient, .reduction = average});
    }
    wait_for_device();
}

DPTK_INLINE void ModelReplica::wait_for_device() const {
    if (is_on_device()) device_calls().synchronize(device().index);
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE DataParallel::DataParallel(std::vector<ParameterSource> replicas, ThreadOptions options)
    : job_(number_of(replicas), options) {
    for (ParameterSource& source : replicas) replicas_.emplace_back(std::move(source));
    try {
        on_all([&](detail::ModelReplica& replica, std::size_t number) {
            replica.join(job_, static_cast<int>(number));
        });
    } catch (...) {
        leave();
        throw;
    }
}

DPTK_INLINE DataParallel::~DataParallel() {
    leave();
}

DPTK_INLINE const std::vector<ParameterRef>& DataParallel::parameters() const noexcept {
    return replicas_.front().parameters();
}

DPTK_INLINE int DataParallel::number_of(const std::vector<ParameterSource>& replicas) {
    if (replicas.empty()) throw ArgumentError("DataParallel: expected at least one replica, got none");
    return static_cast<int>(replicas.size());
}

DPTK_INLINE std::span<const std::size_t> DataParallel::part_of(std::span<const std::size_t> batch,
                                                               std::size_t replica) const {
    const std::size_t each = batch.size() / replicas_.size();
    const std::size_t longer = batch.size() % replicas_.size();
    return batch.subspan(each * replica + std::min(replica, longer), each + (replica < longer ? 1 : 0));
}

DPTK_INLINE void DataParallel::leave() noexcept {
    try {
        on_all([](detail::ModelReplica& replica, std::size_t) { replica.leave(); });
    } catch (const std::exception&) {  // the constructor or step() has already reported the error
    }
}

}  // namespace DPTK_NAMESPACE
