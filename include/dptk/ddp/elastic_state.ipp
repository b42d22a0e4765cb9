#pragma once

#include "dptk/ddp/elastic_state.hpp"

#include <cstring>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/detail/elastic_group.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/device_calls.hpp"
#include "dptk/ddp/detail/gradient_reducer.hpp"

namespace DPTK_NAMESPACE::detail {

/// Copies the elements of a value from or to host memory.
DPTK_INLINE void copy_bytes(void* to, const void* from, std::size_t bytes, Device device) {
    if (device.type == DeviceType::cpu) {
        if (bytes > 0) std::memcpy(to, from, bytes);
    } else {
        device_calls().copy(to, from, bytes, device.index);
    }
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

class ElasticState::AveragesOfDdp final : public Averages {
  public:
    explicit AveragesOfDdp(DistributedDataParallel& ddp) : ddp_(ddp) {}
    std::size_t steps() override { return ddp_.reducer().steps(); }
    std::vector<ParameterRef> find_parameters() override { return ddp_.reducer().find_parameters(); }
    std::vector<std::byte> copy_buffers() override { return ddp_.reducer().copy_buffers(); }
    void restore_buffers(std::span<const std::byte> elements) override {
        ddp_.reducer().restore_buffers(elements);
    }
    void continue_over(ProcessGroup& group, int root) override { ddp_.continue_over(group, root); }

  private:
    DistributedDataParallel& ddp_;
};

/// The models of a ReproducibleDataParallel have no buffers.
class ElasticState::AveragesOfReproducible final : public Averages {
  public:
    explicit AveragesOfReproducible(ReproducibleDataParallel& ddp) : ddp_(ddp) {}
    std::size_t steps() override { return ddp_.steps_; }
    std::vector<ParameterRef> find_parameters() override { return ddp_.parameters_.source().collect(); }
    std::vector<std::byte> copy_buffers() override { return {}; }
    void restore_buffers(std::span<const std::byte> /*elements*/) override {}
    void continue_over(ProcessGroup& /*group*/, int root) override { ddp_.continue_over(root); }

  private:
    ReproducibleDataParallel& ddp_;
};

DPTK_INLINE std::unique_ptr<ElasticState::Averages> ElasticState::averages_of(DistributedDataParallel& ddp) {
    return std::make_unique<AveragesOfDdp>(ddp);
}

DPTK_INLINE std::unique_ptr<ElasticState::Averages> ElasticState::averages_of(ReproducibleDataParallel& ddp) {
    return std::make_unique<AveragesOfReproducible>(ddp);
}

DPTK_INLINE ElasticState::ElasticState(ProcessGroup& group, std::unique_ptr<Averages> averages)
    : group_(group), averages_(std::move(averages)), slots_(averages_->find_parameters().size()) {
    keep_buffers();
}

DPTK_INLINE void ElasticState::keep_buffers() {
    if (group_.is_elastic()) buffers_ = averages_->copy_buffers();
}

DPTK_INLINE ElasticState::~ElasticState() = default;

DPTK_INLINE void ElasticState::keep_objects() {
    keep_buffers();
    averages_->commit();
    for (const auto& part : parts_) part->commit();
}

DPTK_INLINE void ElasticState::begin() {
    if (!group_.is_elastic()) return;
    keep_objects();
    restore();
}

DPTK_INLINE void ElasticState::commit() {
    if (!group_.is_elastic()) {
        ++steps_;
        return;
    }
    if (changes_ == 0 || averages_->steps() == synchronized_)
        throw ArgumentError(
            "ElasticState: a step is complete, but its DistributedDataParallel has synchronized no gradients "
            "in it: a step consists of all of its micro-batches");
    note_point(false);
}

DPTK_INLINE void ElasticState::note_point(bool keeps_values) {
    values_ = keeps_values ? copy_values() : std::vector<std::byte>();
    keep_objects();
    ++steps_;
    synchronized_ = averages_->steps();
    generation_ = detail::ElasticGroup::generation(group_).number;
}

DPTK_INLINE void ElasticState::restore() {
    if (changes_ == 0) keep_objects();
    detail::ElasticGroup::reform(group_, [&] { exchange(); });
    ++changes_;
    synchronized_ = averages_->steps();
    // The ranks of a program with a mistake would repeat it together for ever.
    constexpr int most_changes = 5;
    const std::vector<detail::MemberId>& members = detail::ElasticGroup::generation(group_).members;
    const bool is_same = steps_ == steps_at_change_ && members_ == members;
    changes_without_step_ = is_same ? changes_without_step_ + 1 : 0;
    steps_at_change_ = steps_;
    members_ = members;
    if (changes_without_step_ < most_changes) return;
    const std::string& cause = detail::ElasticGroup::cause(group_);
    detail::throw_agreed(
        group_, Error(detail::text("ElasticState: the same ranks have formed their group ", most_changes,
                                   " times without completing a step",
                                   cause.empty() ? "" : ", the last time because: ", cause)));
}

DPTK_INLINE void ElasticState::exchange() {
    averages_->restore_buffers(buffers_);
    if (!values_.empty()) write_values(values_);
    // A rank that was stopped may complete a step that the others have repeated without it.
    using Point = std::pair<std::int64_t, std::int64_t>;
    const std::vector<std::int64_t> steps = group_.all_gather_value(steps_);
    const std::vector<std::int64_t> generations = group_.all_gather_value(generation_);
    const Point own{steps_, generation_};
    std::map<Point, int> ranks;  // the first rank that is there
    for (int rank = group_.size() - 1; rank >= 0; --rank) {
        const auto i = static_cast<std::size_t>(rank);
        if (steps[i] >= 0) ranks[{steps[i], generations[i]}] = rank;
    }
    if (ranks.empty())
        detail::throw_agreed(group_, Error("ElasticState: all ranks that had the state of the training have "
                                           "ended while they sent it to the others"));
    const auto can_continue = [&](const Point& point, int root) {
        return averages_->can_continue(
            group_, {.root = root, .is_reached = own >= point, .keeps_values = !values_.empty()});
    };
    while (!can_continue(std::prev(ranks.end())->first, std::prev(ranks.end())->second)) {
        ranks.erase(std::prev(ranks.end()));
        if (ranks.empty())
            detail::throw_agreed(
                group_, Error("ElasticState: a part of the sharded optimizer's state was lost, because both "
                              "ranks that had it were lost in the same step: continue from a checkpoint"));
    }
    const auto [last, root] = *std::prev(ranks.end());
    const bool is_new = steps_ <= 0;
    if (own != last && !is_new) {
        const std::vector<std::byte> values = copy_values();
        for (const auto& part : parts_) part->back_up();
        try {
            exchange_from(root);
        } catch (...) {
            write_values(values);
            averages_->roll_back();
            for (const auto& part : parts_) part->roll_back();
            throw;
        }
        for (const auto& part : parts_) part->forget_backup();
    } else {
        if (own != last) steps_ = -1;  // until the state has been received
        exchange_from(root);
    }
    averages_->accept();
    std::tie(steps_, generation_) = last;
    keep_buffers();
    values_ = copy_values();  // until the next step is complete
}

DPTK_INLINE void ElasticState::exchange_from(int root) {
    averages_->continue_over(group_, root);
    for (const auto& part : parts_) part->exchange(group_, root);
    group_.barrier();
}

DPTK_INLINE std::vector<std::byte> ElasticState::copy_values() {
    std::vector<std::byte> out;
    for (const ParameterRef& parameter : averages_->find_parameters()) {
        const Buffer value = parameter.value_buffer();
        const std::size_t first = out.size();
        out.resize(first + value.bytes());
        detail::copy_bytes(out.data() + first, value.data, value.bytes(), value.device);
    }
    return out;
}

DPTK_INLINE void ElasticState::write_values(std::span<const std::byte> values) {
    for (const ParameterRef& parameter : averages_->find_parameters()) {
        const Buffer value = parameter.value_buffer();
        detail::copy_bytes(value.data, values.data(), value.bytes(), value.device);
        values = values.subspan(value.bytes());
    }
}

}  // namespace DPTK_NAMESPACE
