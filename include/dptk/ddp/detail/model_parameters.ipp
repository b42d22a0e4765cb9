#pragma once

#include "dptk/ddp/detail/model_parameters.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/ddp/detail/model_table.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE ModelParameters::ModelParameters(ParameterSource source) : source_(std::move(source)) {}

DPTK_INLINE void ModelParameters::find(const DistributedDataParallelOptions& options) {
    set(source_.collect());
    ignored_ = ignored_parameters(refs_, options);
    tied_ = TiedParameters(refs_);
    check_not_empty();
    check_tied_are_ignored_together();
}

DPTK_INLINE void ModelParameters::set(std::vector<ParameterRef> parameters) {
    refs_ = std::move(parameters);
    addresses_.resize(size());
    for (std::size_t i = 0; i < size(); ++i) addresses_[i] = {refs_[i].value, refs_[i].gradient};
    has_lazy_gradients_ = detail::any_of(
        refs_, [](const ParameterRef& parameter) { return static_cast<bool>(parameter.lazy_gradient); });
}

DPTK_INLINE bool ModelParameters::read_addresses() {
    if (!source_.read_again(refs_, other_addresses_)) {
        collect_again();
        return true;
    }
    if (other_addresses_ == addresses_) return false;
    check_moves();
    for (std::size_t i = 0; i < size(); ++i) {
        refs_[i].value = other_addresses_[i].value;
        refs_[i].gradient = other_addresses_[i].gradient;
    }
    std::swap(addresses_, other_addresses_);
    return true;
}

DPTK_INLINE void ModelParameters::collect_again() {
    std::vector<ParameterRef> collected = source_.collect();
    check_unchanged(refs_, collected);
    for (std::size_t i = 0; i < size(); ++i)
        other_addresses_[i] = {collected[i].value, collected[i].gradient};
    check_moves();
    other_addresses_ = addresses_;
    set(std::move(collected));
}

DPTK_INLINE void ModelParameters::check_moves() {
    const auto has_moved = [&](std::size_t i) {
        return other_addresses_[i].value != addresses_[i].value ||
               (!refs_[i].lazy_gradient && other_addresses_[i].gradient != addresses_[i].gradient);
    };
    for (std::size_t i = 0; i < size(); ++i) {
        if (!has_moved(i)) continue;
        check_ties();
        return by_address_.clear();
    }
}

DPTK_INLINE void ModelParameters::read_addresses_again(const std::function<bool(std::size_t)>& is_marked,
                                                       bool keeps_lazy) {
    if (!read_addresses()) return;
    const std::vector<ParameterAddresses>& addresses_before = other_addresses_;
    for (std::size_t i = 0; i < size(); ++i) {
        const ParameterRef& parameter = refs_[i];
        void* const before = addresses_before[i].gradient;
        if (parameter.lazy_gradient && before != nullptr)
            set_gradient(i, keeps_lazy ? before : parameter.lazy_gradient(IfMissing::null));
        if (parameter.gradient != before && is_marked(i))
            throw ArgumentError(text("gradient ", parameter.name,
                                     " has moved in memory since the step began: under Ready::marked, "
                                     "gradients must stay where they are until synchronize() returns"),
                                {.parameter = parameter.name});
    }
}

DPTK_INLINE void ModelParameters::set_gradient(std::size_t i, void* gradient) noexcept {
    refs_[i].gradient = gradient;
    addresses_[i].gradient = gradient;
}

DPTK_INLINE void ModelParameters::check_ties() {
    tied_now_.find(refs_, other_addresses_);
    const auto check = [&](std::size_t i, std::size_t before, std::size_t first, std::string_view what) {
        if (first == before) return;
        const bool is_new = first != i;
        throw ArgumentError(
            text("parameters ", refs_[is_new ? first : before].name, " and ", refs_[i].name,
                 is_new ? " have one " : " no longer have one ", what, " in memory, unlike at construction"),
            {.parameter = refs_[i].name});
    };
    for (std::size_t i = 0; i < size(); ++i) {
        check(i, tied_.first(i), tied_now_.first(i), "gradient");
        check(i, tied_.first_of_value(i), tied_now_.first_of_value(i), "value");
    }
}

DPTK_INLINE void ModelParameters::read_all_addresses() {
    read_addresses();
    if (!has_lazy_gradients_) return;
    for (std::size_t i = 0; i < size(); ++i) {
        if (!ignored_[i]) find_gradient(i, IfMissing::null);
    }
}

DPTK_INLINE std::vector<std::size_t> ModelParameters::sent() const {
    std::vector<std::size_t> sent;
    for (std::size_t i = 0; i < size(); ++i) {
        if (!ignored_[i] && !tied_.is_repeated(i)) sent.push_back(i);
    }
    return sent;
}

DPTK_INLINE void ModelParameters::check_not_empty() const {
    if (refs_.empty())
        throw ArgumentError(
            "the model has no parameters yet: first create them, then pass values and gradients, as in "
            "DistributedDataParallel ddp(group, values, gradients), or a model with a member "
            "for_each_parameter(sink) or a free function for_each_parameter(model, sink)");
    if (!detail::contains(ignored_, false))
        throw ArgumentError(text("parameters_to_ignore names all ", size(), " parameters of the model"));
    if (detail::all_of(refs_, [](const ParameterRef& parameter) { return parameter.count == 0; }))
        throw ArgumentError(text("the model's ", size(), " parameters have no elements yet: first give them ",
                                 "their size, for example by a forward pass"));
}

DPTK_INLINE void ModelParameters::check_tied_are_ignored_together() const {
    for (std::size_t i = 0; i < size(); ++i) {
        const std::size_t first = tied_.first(i);
        if (ignored_[i] == ignored_[first]) continue;
        throw ArgumentError(text("parameters_to_ignore names only one of ", refs_[first].name, " and ",
                                 refs_[i].name, ", which have the same gradient: name both or none"));
    }
}

DPTK_INLINE void ModelParameters::find_gradient(std::size_t i, IfMissing if_missing) {
    const ParameterRef& parameter = refs_[i];
    if (parameter.gradient == nullptr && parameter.lazy_gradient)
        set_gradient(i, parameter.lazy_gradient(if_missing));
}

DPTK_INLINE std::size_t ModelParameters::index_of_gradient(const void* gradient) {
    if (by_address_.empty()) {
        for (std::size_t i = 0; i < size(); ++i) {
            if (refs_[i].gradient != nullptr && refs_[i].count != 0 && !refs_[i].lazy_gradient)
                by_address_.emplace_back(refs_[i].gradient, i);
        }
        detail::sort(by_address_, [](const auto& a, const auto& b) {
            return a.first != b.first ? std::less<>()(a.first, b.first) : a.second < b.second;
        });
    }
    const auto found = std::lower_bound(
        by_address_.begin(), by_address_.end(), gradient,
        [](const auto& entry, const void* address) { return std::less<>()(entry.first, address); });
    return found != by_address_.end() && found->first == gradient ? found->second : size();
}

DPTK_INLINE std::string ModelParameters::table() const {
    std::string out;
    for (std::size_t i = 0; i < size(); ++i) out += parameter_line(refs_[i], ignored_[i]);
    for (std::size_t i = 0; i < size(); ++i) {
        const auto add = [&](std::string_view what, std::size_t first) {
            if (first != i)
                out += text(refs_[i].name, '\t', what, refs_[i].name, " is also that of ", refs_[first].name,
                            "\n");
        };
        add("the gradient of ", tied_.first(i));
        add("the value of ", tied_.first_of_value(i));
    }
    return out;
}

DPTK_INLINE void ModelParameters::broadcast_values(ProcessGroup& group, int root, StreamRef stream) {
    for (std::size_t i = 0; i < size(); ++i) {
        const std::size_t first = tied_.first_of_value(i);
        const bool is_sent_already = first != i && !ignored_[first];
        if (ignored_[i] || is_sent_already) continue;
        const Buffer value = refs_[i].value_buffer();
        run(group,
            {.verb = Verb::broadcast, .input = value, .output = value, .root = root, .stream = stream});
    }
}

DPTK_INLINE void ModelParameters::run(ProcessGroup& group, const Collective& call) {
    if (call.input.on_device()) return group.engine().start(call, nullptr).wait();
    group.engine().run(call);
}

}  // namespace DPTK_NAMESPACE::detail
