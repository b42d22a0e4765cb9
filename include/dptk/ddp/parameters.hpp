/// Parameter discovery: finds the parameters in a model or in containers. for_each_parameter(model, sink)
/// is the customization point. It calls a member function of the model if there is one, otherwise a
/// function found by ADL, otherwise dptk's own support for the following types, nested to any depth:
/// - a contiguous range of floating-point numbers, which is one parameter;
/// - device memory with data(), size() and device(), which is one parameter;
/// - an array of a library for which dptk/adapters has a header, which is one parameter;
/// - std::pair of two such arrays, which are a value and its gradient;
/// - ranges, tuples, and pointers to parameters;
/// - maps, in the order of their keys.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/device_span.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/ddp/array_traits.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

template <class R>
concept FloatingRange =
    std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    Element<std::ranges::range_value_t<R>> && is_floating(dtype_of<std::ranges::range_value_t<R>>) &&
    !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

template <DeviceRange R>
using DeviceElement = std::remove_pointer_t<decltype(std::declval<R&>().data())>;

template <class R>
concept FloatingDeviceMemory =
    DeviceRange<R> && is_floating(dtype_of<DeviceElement<R>>) && !std::is_const_v<DeviceElement<R>>;

/// The elements of one parameter, in host or device memory.
template <class R>
concept FloatingElements =
    KnownArray<std::remove_reference_t<R>> || FloatingRange<R> || FloatingDeviceMemory<R>;

template <FloatingElements R>
inline constexpr DType dtype_of_elements = [] {
    if constexpr (KnownArray<std::remove_reference_t<R>>) {
        return dtype_of<typename ArrayTraits<std::remove_cvref_t<R>>::Element>;
    } else if constexpr (FloatingRange<R>) {
        return dtype_of<std::ranges::range_value_t<R>>;
    } else {
        return dtype_of<DeviceElement<R>>;
    }
}();

template <class A>
concept HasShape = requires(const A& array) {
    { array.shape() } -> std::ranges::input_range;
};

/// Describes an array. Reuses the memory of `array`, which describes an earlier one.
template <FloatingElements R>
void describe(R& elements, ArrayRef& array) {
    if constexpr (KnownArray<R>) {
        static_assert(!std::is_const_v<R>,
                      "dptk: a const array cannot receive rank 0's values or the averaged gradients");
        array = ArrayTraits<std::remove_cv_t<R>>::array(elements);
        return;
    } else if constexpr (FloatingRange<R>) {
        array.elements = {std::ranges::data(elements), static_cast<std::size_t>(std::ranges::size(elements)),
                          dtype_of_elements<R>};
    } else {
        array.elements = {elements.data(), static_cast<std::size_t>(elements.size()), dtype_of_elements<R>,
                          elements.device()};
    }
    array.shape.clear();
    if constexpr (HasShape<R>) {
        for (const auto extent : elements.shape()) array.shape.push_back(static_cast<std::size_t>(extent));
    } else {
        array.shape.push_back(array.elements.count);
    }
    array.layout = 0;
    array.run = 0;
    array.stride = 0;
}

/// Where the value and the gradient of a parameter lie.
struct ParameterAddresses {
    void* value = nullptr;
    void* gradient = nullptr;

    friend bool operator==(const ParameterAddresses&, const ParameterAddresses&) = default;
};

/// What must not change of a parameter, except its shape, in few bytes, so that many are compared quickly.
struct ParameterForm {
    explicit ParameterForm(const ParameterRef& parameter);

    std::size_t count;
    std::uint64_t layout;
    DType dtype;
    DType gradient_dtype;
    Device device;
    bool is_lazy;    ///< Whether there is a lazy_gradient.
    bool is_vector;  ///< Whether the shape is {count}.
};

/// What a container contains: values with their gradients, or only one of these.
enum class ParameterPart : std::uint8_t { both, values, gradients };

}  // namespace detail

/// Receives parameters one by one. A model's own for_each_parameter calls it as sink(value), sink(value,
/// gradient), sink("name", value, gradient), sink("name", part), or sink(ParameterRef). Value and gradient
/// are contiguous ranges, or device memory, of equal size and of any floating-point types, such as float and
/// bfloat16; a shape() member gives their dimensions.
class ParameterSink {
  public:
    ParameterSink() = default;

    /// Adds a parameter. If its name is empty, its name becomes path(), or its index, such as "[3]", if
    /// path() is empty.
    void operator()(const ParameterRef& parameter);
    /// Accepts the next parameter.
    void operator()(ParameterRef&& parameter);

    /// Adds one array: either a value or a gradient, for values and gradients in two containers.
    template <detail::FloatingElements Value>
    void operator()(Value&& value) {
        detail::describe(value, value_);
        if (reads_addresses()) return read_addresses(value_);
        add(value_, value_.run_length());
    }

    /// Adds a value and its gradient. Throws ArgumentError if they differ in size, shape, order of elements
    /// or device.
    template <detail::FloatingElements Value, detail::FloatingElements Gradient>
    void operator()(Value&& value, Gradient&& gradient) {
        detail::describe(value, value_);
        detail::describe(gradient, gradient_);
        if (reads_addresses()) return read_addresses(value_, gradient_);
        add(value_, gradient_);
    }

    /// Adds a value and its gradient under a name, which is appended to path() as by inside().
    template <detail::FloatingElements Value, detail::FloatingElements Gradient>
    void operator()(std::string_view name, Value&& value, Gradient&& gradient) {
        inside(name, [&] { (*this)(std::forward<Value>(value), std::forward<Gradient>(gradient)); });
    }

    /// Adds the parameters of a part of the model under a name, which is appended to path() as by inside():
    /// sink("encoder", encoder_). The part is whatever dptk::for_each_parameter() supports.
    template <class Part>
        requires(!detail::FloatingElements<Part&>)
    void operator()(std::string_view name, Part&& part);

    /// Calls visit() with `element` appended to path(), and thereby to the names of the parameters that
    /// visit() adds: inside("[3]", ...) within "weights" makes "weights[3]".
    template <class Visit>
    void inside(std::string_view element, Visit&& visit) {
        if (reads_addresses()) return visit();  // without names
        const std::size_t length = path_.size();
        if (!path_.empty() && !element.empty() && element.front() != '[') path_ += '.';
        path_ += element;
        visit();
        path_.resize(length);
    }

    /// Calls visit() with "[index]" appended to path().
    template <class Visit>
    void inside(std::size_t index, Visit&& visit) {
        if (reads_addresses()) return visit();
        std::array<char, 24> element{'['};
        char* const end = std::to_chars(element.data() + 1, element.data() + element.size() - 1, index).ptr;
        *end = ']';
        inside({element.data(), end + 1}, visit);
    }

    /// Returns the path to the part of the model that is being visited, such as "layers[3].weight", or an
    /// empty text at the top level.
    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    /// Returns the parameters that were added so far, in the order of their addition. They may be modified
    /// or moved out.
    [[nodiscard]] std::vector<ParameterRef>& parameters();

  private:
    friend class ParameterSource;
    friend class DataParallelSteps;

    using Visitor = std::function<void(ParameterSink&)>;

    /// Makes a sink that passes the address of each gradient, or of each array without one, to a function,
    /// and adds no parameters. Allocates no memory.
    explicit ParameterSink(std::function<void(const void*)> take_gradient)
        : take_gradient_(std::move(take_gradient)) {}

    /// Returns whether only addresses are read, and no parameters added.
    [[nodiscard]] bool reads_addresses() const noexcept { return known_ != nullptr || take_gradient_; }

    void read_addresses(const ParameterRef& parameter);
    void read_addresses(const ArrayRef& array);
    void read_addresses(const ArrayRef& value, const ArrayRef& gradient);

    /// Passes the address of each run of an array to take_gradient_.
    void take_runs(const ArrayRef& gradient, std::size_t run) const;

    /// Reads only the addresses of parameters that are known from an earlier visit. Returns whether the
    /// visitor has passed the same parameters. Allocates no memory after the first call, except in the
    /// visitor.
    [[nodiscard]] bool read_again(const Visitor& visitor, std::vector<ParameterRef>& known,
                                  std::vector<detail::ParameterAddresses>& now, detail::ParameterPart part);

    void read_again(const ParameterRef& parameter);
    void read_again(const ArrayRef& array);
    void read_again(const ArrayRef& value, const ArrayRef& gradient);

    /// Takes the address of the next known parameter, or of its gradient if only gradients are read. Notes if
    /// the parameter has changed in anything else, or has no address. Returns its addresses; null if it has
    /// changed.
    detail::ParameterAddresses* take(const Buffer& elements, std::span<const std::size_t> shape,
                                     std::uint64_t layout);

    /// Takes the address of a gradient, which is not lazy, of the parameter that take() was called for.
    void take_gradient(const Buffer& gradient, detail::ParameterAddresses& now);

    /// Returns whether the next known parameter has this shape, of any number of dimensions, and this layout.
    /// A gradient may have one dimension where its parameter has several.
    [[nodiscard]] bool has_same_order(std::span<const std::size_t> shape, std::uint64_t layout) const;

    [[nodiscard]] std::string next_name() const;

    /// Adds an array as one parameter if it has `run` elements, otherwise each run of `run` elements as a
    /// parameter, such as "weight.run[3]".
    void add(const ArrayRef& array, std::size_t run);
    void add(const ArrayRef& value, const ArrayRef& gradient);

    void add_piece(std::string name, const Buffer& elements, std::vector<std::size_t> shape,
                   std::uint64_t layout);

    void check_compatible(const ArrayRef& value, const ArrayRef& gradient) const;

    std::string path_;
    std::vector<ParameterRef> parameters_;
    ArrayRef value_;     // the array that is being added; its memory is reused
    ArrayRef gradient_;  // its gradient
    bool were_parameters_used_ = false;

    std::function<void(const void*)> take_gradient_;

    std::vector<detail::ParameterForm> forms_;  // by parameter, for read_again()

    // While addresses are read again:
    std::vector<ParameterRef>* known_ = nullptr;
    std::vector<detail::ParameterAddresses>* now_ = nullptr;
    detail::ParameterPart part_ = detail::ParameterPart::both;
    std::size_t next_ = 0;
    bool are_same_ = true;
};

namespace detail::access {

void for_each_parameter() = delete;  // makes the lookup below find users' functions by ADL only

template <class M>
concept HasMemberForEachParameter =
    requires(M& model, ParameterSink& sink) { model.for_each_parameter(sink); };

template <class M>
concept HasAdlForEachParameter = requires(M& model, ParameterSink& sink) { for_each_parameter(model, sink); };

template <class M>
concept MapLike = std::ranges::range<M> && requires {
    typename M::key_type;
    typename M::mapped_type;
};

template <class M>
concept TupleLike = requires { std::tuple_size<std::remove_cvref_t<M>>::value; } && !std::ranges::range<M>;

template <class M>
concept PointerLike = !std::ranges::range<M> && requires(M& pointer) {
    *pointer;
    static_cast<bool>(pointer);
};

template <class M>
inline constexpr bool is_value_and_gradient = false;

template <class A, class B>
inline constexpr bool is_value_and_gradient<std::pair<A, B>> =
    FloatingElements<std::remove_reference_t<A>> && FloatingElements<std::remove_reference_t<B>>;

template <class>
inline constexpr bool never = false;

template <class Key, class Visit>
void inside_key(ParameterSink& sink, const Key& key, Visit&& visit) {
    if constexpr (std::convertible_to<const Key&, std::string_view>) {
        sink.inside(std::string_view(key), visit);
    } else if constexpr (std::unsigned_integral<Key> && sizeof(Key) > 1) {
        sink.inside(std::size_t{key}, visit);
    } else if constexpr (std::is_arithmetic_v<Key>) {
        sink.inside(text("[", key, "]"), visit);
    } else {
        sink.inside("[?]", visit);
    }
}

struct ForEachParameter {
    template <class Model>
    void operator()(Model& model, ParameterSink& sink) const {
        using M = std::remove_cv_t<Model>;
        if constexpr (HasMemberForEachParameter<Model>) {
            model.for_each_parameter(sink);
        } else if constexpr (HasAdlForEachParameter<Model>) {
            for_each_parameter(model, sink);
        } else if constexpr (FloatingElements<Model&>) {
            sink(model);
        } else if constexpr (MapLike<M>) {
            visit_map(model, sink);
        } else if constexpr (is_value_and_gradient<M>) {
            sink(model.first, model.second);
        } else if constexpr (TupleLike<M>) {
            visit_tuple(model, sink, std::make_index_sequence<std::tuple_size_v<M>>{});
        } else if constexpr (std::ranges::input_range<Model>) {
            std::size_t index = 0;
            for (auto&& element : model) {
                sink.inside(index++, [&] { (*this)(element, sink); });
            }
        } else if constexpr (PointerLike<M>) {
            if (!model)
                throw ArgumentError(text("parameter ", sink.path(), " is a null pointer"),
                                    {.parameter = sink.path()});
            (*this)(*model, sink);
        } else {
            static_assert(
                never<Model>,
                "dptk: this type holds no parameters that dptk knows how to find. Pass values and gradients "
                "in two containers of contiguous ranges of float or double; or give the type a member "
                "`void for_each_parameter(auto& sink)`, or its namespace a function "
                "`void for_each_parameter(Type&, dptk::ParameterSink& sink)`, that calls "
                "sink(\"name\", value, gradient) for each parameter");
        }
    }

  private:
    template <class Map>
    void visit_map(Map& map, ParameterSink& sink) const {
        using Entry = std::remove_reference_t<std::ranges::range_reference_t<Map>>;
        const auto visit = [&](Entry& entry) {
            inside_key(sink, entry.first, [&] { (*this)(entry.second, sink); });
        };
        const auto comes_later = [](const Entry& a, const Entry& b) { return b.first < a.first; };
        if (std::ranges::adjacent_find(map, comes_later) == std::ranges::end(map)) {
            for (Entry& entry : map) visit(entry);
            return;
        }
        std::vector<Entry*> entries;
        for (Entry& entry : map) entries.push_back(&entry);
        detail::stable_sort(entries, [](Entry* a, Entry* b) { return a->first < b->first; });
        for (Entry* entry : entries) visit(*entry);
    }

    template <class Tuple, std::size_t... I>
    void visit_tuple(Tuple& tuple, ParameterSink& sink, std::index_sequence<I...>) const {
        (sink.inside(I, [&] { (*this)(std::get<I>(tuple), sink); }), ...);
    }
};

}  // namespace detail::access

/// Calls `sink` for every parameter of `model`, always in the same order. The top of this header lists the
/// supported types. Throws ArgumentError for a null pointer, or if a gradient and its value differ in size.
inline constexpr detail::access::ForEachParameter for_each_parameter{};

template <class Part>
    requires(!detail::FloatingElements<Part&>)
void ParameterSink::operator()(std::string_view name, Part&& part) {
    inside(name, [&] { for_each_parameter(part, *this); });
}

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/parameters.ipp"
#endif
