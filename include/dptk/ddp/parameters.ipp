#pragma once

#include "dptk/ddp/parameters.hpp"

#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE detail::ParameterForm::ParameterForm(const ParameterRef& parameter)
    : count(parameter.count),
      layout(parameter.layout),
      dtype(parameter.dtype),
      gradient_dtype(parameter.gradient_buffer().dtype),
      device(parameter.device),
      is_lazy(static_cast<bool>(parameter.lazy_gradient)),
      is_vector(parameter.shape.size() == 1 && parameter.shape[0] == parameter.count) {}

DPTK_INLINE void ParameterSink::operator()(const ParameterRef& parameter) {
    if (reads_addresses()) return read_addresses(parameter);
    (*this)(ParameterRef(parameter));
}

DPTK_INLINE void ParameterSink::operator()(ParameterRef&& parameter) {
    if (reads_addresses()) return read_addresses(parameter);
    if (parameter.name.empty()) parameter.name = next_name();
    parameters_.push_back(std::move(parameter));
}

DPTK_INLINE std::vector<ParameterRef>& ParameterSink::parameters() {
    were_parameters_used_ = true;
    if (reads_addresses()) throw ArgumentError("no parameters are added while only addresses are read");
    return parameters_;
}

DPTK_INLINE bool ParameterSink::read_again(const Visitor& visitor, std::vector<ParameterRef>& known,
                                           std::vector<detail::ParameterAddresses>& now,
                                           detail::ParameterPart part) {
    struct Scope {
        ParameterSink& sink;
        ~Scope() {
            sink.known_ = nullptr;
            sink.path_.clear();
        }
    };
    if (were_parameters_used_) return false;  // the visitor may change what it has added
    const Scope scope{*this};
    if (forms_.size() != known.size()) forms_ = {known.begin(), known.end()};
    known_ = &known;
    now_ = &now;
    part_ = part;
    next_ = 0;
    are_same_ = true;
    visitor(*this);
    return are_same_ && next_ == known.size();
}

DPTK_INLINE void ParameterSink::read_addresses(const ParameterRef& parameter) {
    if (!take_gradient_) return read_again(parameter);
    take_gradient_(parameter.gradient != nullptr ? parameter.gradient : parameter.value);
}

DPTK_INLINE void ParameterSink::read_addresses(const ArrayRef& array) {
    if (!take_gradient_) return read_again(array);
    take_runs(array, array.run_length());
}

DPTK_INLINE void ParameterSink::read_addresses(const ArrayRef& value, const ArrayRef& gradient) {
    if (!take_gradient_) return read_again(value, gradient);
    take_runs(gradient, std::min(value.run_length(), gradient.run_length()));
}

DPTK_INLINE void ParameterSink::take_runs(const ArrayRef& gradient, std::size_t run) const {
    const std::size_t runs = run == gradient.elements.count ? 1 : gradient.elements.count / run;
    for (std::size_t i = 0; i < runs; ++i) take_gradient_(gradient.piece(i * run, run).data);
}

DPTK_INLINE void ParameterSink::read_again(const ParameterRef& parameter) {
    detail::ParameterAddresses* const now = take(parameter.value_buffer(), parameter.shape, parameter.layout);
    if (now == nullptr || part_ != detail::ParameterPart::both) return;
    if (!parameter.lazy_gradient) return take_gradient(parameter.gradient_buffer(), *now);
    const detail::ParameterForm& known = forms_[next_ - 1];
    are_same_ = known.is_lazy && parameter.gradient_buffer().dtype == known.gradient_dtype;
    if (!are_same_) return;
    now->gradient = parameter.gradient;
    (*known_)[next_ - 1].lazy_gradient = parameter.lazy_gradient;
}

DPTK_INLINE void ParameterSink::read_again(const ArrayRef& array) {
    if (part_ == detail::ParameterPart::both) are_same_ = false;  // a value without a gradient
    const std::size_t run = array.run_length();
    if (run == array.elements.count) {
        take(array.elements, array.shape, array.layout);
        return;
    }
    for (std::size_t i = 0; i < array.elements.count / run; ++i)
        take(array.piece(i * run, run), {&run, 1}, array.layout);
}

DPTK_INLINE void ParameterSink::read_again(const ArrayRef& value, const ArrayRef& gradient) {
    const std::size_t count = value.elements.count;
    if (part_ != detail::ParameterPart::both || gradient.elements.count != count ||
        gradient.elements.device != value.elements.device || !detail::have_same_order(value, gradient)) {
        are_same_ = false;
        return;
    }
    const std::size_t run = std::min(value.run_length(), gradient.run_length());
    const std::size_t runs = run == count ? 1 : count / run;
    for (std::size_t i = 0; i < runs; ++i) {
        detail::ParameterAddresses* const now =
            runs == 1 ? take(value.elements, value.shape, value.layout)
                      : take(value.piece(i * run, run), {&run, 1}, value.layout);
        if (now == nullptr) return;
        take_gradient(gradient.piece(i * run, run), *now);
    }
}

DPTK_INLINE detail::ParameterAddresses* ParameterSink::take(const Buffer& elements,
                                                            std::span<const std::size_t> shape,
                                                            std::uint64_t layout) {
    are_same_ = are_same_ && next_ < known_->size();
    if (!are_same_) return nullptr;
    const detail::ParameterForm& known = forms_[next_];
    const bool is_gradient = part_ == detail::ParameterPart::gradients;
    const bool is_same_vector =
        known.is_vector && shape.size() == 1 && shape[0] == known.count && layout == known.layout;
    are_same_ = elements.count == known.count && elements.device == known.device &&
                elements.dtype == (is_gradient ? known.gradient_dtype : known.dtype) &&
                (elements.data != nullptr || known.count == 0) &&
                (is_same_vector || has_same_order(shape, layout));
    if (!are_same_) return nullptr;
    detail::ParameterAddresses& now = (*now_)[next_++];
    (is_gradient ? now.gradient : now.value) = elements.data;
    return &now;
}

DPTK_INLINE void ParameterSink::take_gradient(const Buffer& gradient, detail::ParameterAddresses& now) {
    const detail::ParameterForm& known = forms_[next_ - 1];
    now.gradient = gradient.data;
    if (known.is_lazy || gradient.dtype != known.gradient_dtype ||
        (gradient.data == nullptr && known.count != 0))
        are_same_ = false;
}

DPTK_INLINE bool ParameterSink::has_same_order(std::span<const std::size_t> shape,
                                               std::uint64_t layout) const {
    const ParameterRef& known = (*known_)[next_];
    if (detail::equal(shape, known.shape) && layout == known.layout) return true;
    return part_ == detail::ParameterPart::gradients && (shape.size() == 1 || known.shape.size() == 1);
}

DPTK_INLINE std::string ParameterSink::next_name() const {
    return path_.empty() ? detail::text("[", parameters_.size(), "]") : path_;
}

DPTK_INLINE void ParameterSink::add(const ArrayRef& array, std::size_t run) {
    if (run == array.elements.count)
        return add_piece(next_name(), array.elements, {array.shape.begin(), array.shape.end()}, array.layout);
    const std::string whole = next_name();
    for (std::size_t i = 0; i < array.elements.count / run; ++i)
        add_piece(detail::text(whole, ".run[", i, "]"), array.piece(i * run, run), {run}, array.layout);
}

DPTK_INLINE void ParameterSink::add(const ArrayRef& value, const ArrayRef& gradient) {
    check_compatible(value, gradient);
    const std::size_t run = std::min(value.run_length(), gradient.run_length());
    const std::size_t first = parameters_.size();
    add(value, run);
    for (std::size_t i = first; i < parameters_.size(); ++i) {
        parameters_[i].gradient = gradient.piece((i - first) * run, run).data;
        parameters_[i].gradient_dtype = gradient.elements.dtype;
    }
}

DPTK_INLINE void ParameterSink::add_piece(std::string name, const Buffer& elements,
                                          std::vector<std::size_t> shape, std::uint64_t layout) {
    ParameterRef parameter;
    parameter.name = std::move(name);
    parameter.shape = std::move(shape);
    parameter.dtype = elements.dtype;
    parameter.device = elements.device;
    parameter.count = elements.count;
    parameter.value = elements.data;
    parameter.layout = layout;
    parameters_.push_back(std::move(parameter));
}

DPTK_INLINE void ParameterSink::check_compatible(const ArrayRef& value, const ArrayRef& gradient) const {
    const std::string name = next_name();
    if (gradient.elements.count != value.elements.count) {
        throw ArgumentError(detail::text("parameter ", name, " has ", value.elements.count,
                                         " elements, but its gradient has ", gradient.elements.count));
    }
    detail::check_same_order(name, value, gradient);
    if (gradient.elements.device != value.elements.device) {
        throw ArgumentError(detail::text("parameter ", name, " is on ", device_name(value.elements.device),
                                         ", but its gradient is on ", device_name(gradient.elements.device)));
    }
}

}  // namespace DPTK_NAMESPACE
