#pragma once

#include "dptk/comm/detail/elastic_group.hpp"

#include <utility>

#include "dptk/comm/self.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE ProcessGroup ElasticGroup::start(std::shared_ptr<ElasticGroup> elastic,
                                             std::chrono::milliseconds timeout) {
    ProcessGroup group{SelfCommunicator(SelfTransport(timeout))};
    group.elastic_ = std::move(elastic);
    return group;
}

DPTK_INLINE bool ElasticGroup::has_changed(const ProcessGroup& group) const {
    return !group.is_member() || current().number == 0 || group.engine().control()->job_state()->failed();
}

DPTK_INLINE bool ElasticGroup::is_complete(const ProcessGroup& group) {
    return group.elastic_ && group.elastic_->is_complete_;
}

DPTK_INLINE const Generation& ElasticGroup::generation(const ProcessGroup& group) {
    return group.elastic_->current();
}

DPTK_INLINE const std::string& ElasticGroup::cause(const ProcessGroup& group) {
    return group.elastic_->cause_;
}

DPTK_INLINE void ElasticGroup::check_membership(const ProcessGroup& group) {
    ElasticGroup& elastic = *group.elastic_;
    if (elastic.current().number == 0) return;  // it has not joined yet
    const std::optional<std::string> why = elastic.why_ended();
    if (!why) return;
    JobState& state = *group.engine().control()->job_state();
    state.fail(*why, Failure::remote);  // so that reform() forms the group again
    state.check();
}

DPTK_INLINE void ElasticGroup::finish(const ProcessGroup& group) {
    if (group.elastic_) group.elastic_->note_finishing();
}

DPTK_INLINE void ElasticGroup::reform(ProcessGroup& group, const std::function<void()>& exchange_state) {
    if (!group.elastic_) throw ArgumentError("reform: the group does not belong to an elastic job");
    ElasticGroup& elastic = *group.elastic_;
    elastic.is_complete_ = false;
    while (true) {
        if (elastic.has_changed(group)) {
            if (group.is_member()) elastic.cause_ = group.engine().control()->job_state()->cause();
            if (group.is_member() && group.rank() == 0 && group.size() > 1)
                log(LogLevel::info, 0, text("the ranks of the job change: ", elastic.cause_));
            group.engine_.reset();
            group.why_empty_ = "this group of an elastic job could not be formed again";
            group.engine_ = std::move(elastic.connect().engine_);
        }
        try {
            if (exchange_state) exchange_state();
            group.barrier();
            elastic.note_formed();
            elastic.is_complete_ = true;
            return;
        } catch (const MembershipChanged&) {  // another change: once more
        }
    }
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

// Here, because the class is incomplete in process_group.ipp if this header is included first.
DPTK_INLINE void ProcessGroup::check_membership() const {
    if (elastic_) detail::ElasticGroup::check_membership(*this);
}

}  // namespace DPTK_NAMESPACE
