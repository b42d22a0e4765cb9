#pragma once

#include "dptk/ddp/data_parallel_steps.hpp"

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/ddp/detail/gradient_reducer.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE DataParallelSteps::DataParallelSteps(std::unique_ptr<detail::GradientReducer> reducer)
    : reducer_(std::move(reducer)) {}

DPTK_INLINE DataParallelSteps::~DataParallelSteps() = default;
DPTK_INLINE DataParallelSteps::DataParallelSteps(DataParallelSteps&&) noexcept = default;
DPTK_INLINE DataParallelSteps& DataParallelSteps::operator=(DataParallelSteps&&) noexcept = default;

DPTK_INLINE void DataParallelSteps::begin_step() {
    reducer_->begin_step();
}

DPTK_INLINE void DataParallelSteps::begin_step(std::size_t sample_count) {
    reducer_->begin_step(sample_count);
}

DPTK_INLINE void DataParallelSteps::mark_ready(std::size_t i) {
    reducer_->mark_ready(i);
}

DPTK_INLINE void DataParallelSteps::mark_ready(std::size_t i, void* gradient) {
    reducer_->mark_ready(i, gradient);
}

DPTK_INLINE void DataParallelSteps::mark_ready_at(const void* gradient) {
    reducer_->mark_ready_at(gradient);
}

DPTK_INLINE void DataParallelSteps::mark_unused(std::size_t i) {
    reducer_->mark_unused(i);
}

DPTK_INLINE std::size_t DataParallelSteps::index_of(std::string_view name) const {
    return reducer_->index_of(name);
}

DPTK_INLINE void DataParallelSteps::synchronize() {
    reducer_->synchronize();
}

DPTK_INLINE void DataParallelSteps::synchronize(std::size_t sample_count) {
    reducer_->synchronize(sample_count);
}

DPTK_INLINE void DataParallelSteps::cancel_step() {
    reducer_->cancel_step();
}

DPTK_INLINE NoSync DataParallelSteps::no_sync() {
    return NoSync(*reducer_);
}

DPTK_INLINE void DataParallelSteps::accumulate(std::size_t sample_count) {
    reducer_->accumulate(sample_count);
}

DPTK_INLINE const std::vector<ParameterRef>& DataParallelSteps::parameters() const noexcept {
    return reducer_->parameters();
}

DPTK_INLINE Buffer DataParallelSteps::gradient_buffer(std::size_t i) {
    return reducer_->gradient_memory(i);
}

DPTK_INLINE std::shared_ptr<void> DataParallelSteps::gradient_memory_owner(std::size_t i) {
    return reducer_->bucket_memory(i);
}

DPTK_INLINE DDPStatistics DataParallelSteps::statistics() const {
    return reducer_->statistics();
}

DPTK_INLINE void DataParallelSteps::continue_over(ProcessGroup& group, int root) {
    reducer_ = reducer_->over(group);
    reducer_->broadcast_values(root);
}

DPTK_INLINE Buffer DataParallelSteps::checked_gradient_buffer(std::size_t i, DType dtype, DeviceType type) {
    const Buffer buffer = reducer_->gradient_memory(i);
    if (buffer.dtype != dtype)
        throw ArgumentError(detail::text("gradient ", i, " is of ", dtype_name(buffer.dtype),
                                         ", but memory of ", dtype_name(dtype), " was requested"));
    if (buffer.device.type != type)
        throw ArgumentError(detail::text("gradient ", i, " is on ", device_name(buffer.device), ": expected ",
                                         type == DeviceType::cpu ? "host" : "device", " memory"));
    return buffer;
}

}  // namespace DPTK_NAMESPACE
