/// Elastic jobs: the ranks that are left continue when a rank is lost or leaves, and new ranks join while the
/// job runs. init_process_group({.elastic = true}) joins such a job. A training loop uses ElasticState
/// (ddp/elastic_state.hpp), which calls reform().
#pragma once

#include <functional>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// Forms a group of an elastic job again, in place, of the ranks that are left and those that join; its
/// rank() and size() may change. Then calls `exchange_state`, in which the ranks must send the state of the
/// work to each other, so that new ranks have it, too. If a rank is lost meanwhile, repeats both. Call it
/// after MembershipChanged, and once before the first step: if no rank was lost until then, it only calls
/// `exchange_state`. Duplicates and subgroups of the earlier group cannot be used any more.
///
/// Collective; blocks until all ranks have called it. Throws PeerLostError if the job has ended, because too
/// few ranks are left, and ArgumentError if it is not elastic.
void reform(ProcessGroup& group, const std::function<void()>& exchange_state);

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/elastic.ipp"
#endif
