#pragma once

#include "dptk/ddp/detail/model_parameters.hpp"

#include <utility>

#include "dptk/ddp/detail/model_table.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE ModelParameters::ModelParameters(ParameterSource source) : source_(std::move(source)) {}

DPTK_INLINE void ModelParameters::find(const DistributedDataParallelOptions& options) {
    refs_ = source_.collect();
    ignored_ = ignored_parameters(refs_, options);
}

DPTK_INLINE void ModelParameters::read_addresses() {
    std::vector<ParameterRef> now = source_.collect();
    check_unchanged(refs_, now);
    refs_ = std::move(now);
}

DPTK_INLINE void ModelParameters::find_gradient(std::size_t i, IfMissing if_missing) {
    ParameterRef& parameter = refs_[i];
    if (parameter.gradient == nullptr && parameter.lazy_gradient)
        parameter.gradient = parameter.lazy_gradient(if_missing);
}

DPTK_INLINE void ModelParameters::broadcast_values(ProcessGroup& group, int root, StreamRef stream) {
    for (std::size_t i = 0; i < size(); ++i) {
        if (ignored_[i]) continue;
        const Buffer value{refs_[i].value, refs_[i].count, refs_[i].dtype, refs_[i].device};
        run(group,
            {.verb = Verb::broadcast, .input = value, .output = value, .root = root, .stream = stream});
    }
}

DPTK_INLINE void ModelParameters::run(ProcessGroup& group, const Collective& call) {
    if (call.input.on_device()) return group.channel().start(call, nullptr).wait();
    group.channel().run(call);
}

}  // namespace DPTK_NAMESPACE::detail
