#pragma once

#include "dptk/comm/elastic.hpp"

#include "dptk/comm/detail/elastic_group.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE void reform(ProcessGroup& group, const std::function<void()>& exchange_state) {
    detail::ElasticGroup::reform(group, exchange_state);
}

}  // namespace DPTK_NAMESPACE
