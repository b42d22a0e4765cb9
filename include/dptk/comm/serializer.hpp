/// Serializer converts objects to bytes and back, for collectives and messages of objects. It supports
/// std::string, trivially copyable types, and, of supported types: sequence containers such as std::vector,
/// sets, maps, std::pair, std::tuple, std::array, std::optional and std::variant. Programs specialize it for
/// other types.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// Converts a T to bytes and back. Specialize it for a type of your own:
///   template <> struct dptk::Serializer<Config> {
///       static std::string to_bytes(const Config& config);
///       static Config from_bytes(std::string_view bytes);  // throws if the bytes are invalid
///   };
template <class T>
struct Serializer {};

/// A type that has a Serializer.
template <class T>
concept Serializable = requires(const T& object, std::string_view bytes) {
    { Serializer<T>::to_bytes(object) } -> std::same_as<std::string>;
    { Serializer<T>::from_bytes(bytes) } -> std::same_as<T>;
};

namespace detail {

/// Whether T consists of parts that have Serializers of their own.
template <class T>
inline constexpr bool is_composite = requires { std::tuple_size<T>::value; };
template <class T>
inline constexpr bool is_composite<std::optional<T>> = true;
template <class... T>
inline constexpr bool is_composite<std::variant<T...>> = true;

/// Types that are copied bytewise. Views and pointers are excluded: they would arrive as pointers into the
/// memory of another process.
template <class T>
concept CopiedAsBytes = std::is_trivially_copyable_v<T> && std::is_object_v<T> && !std::is_array_v<T> &&
                        !std::is_pointer_v<T> && !std::ranges::view<T> && !is_composite<T>;

void check_size(bool is_valid, std::string_view bytes, std::size_t expected);

/// Serializes objects of a fixed size as their bytes in memory.
template <class T>
struct MemorySerializer {
    static std::string to_bytes(const T& object) {
        return {reinterpret_cast<const char*>(std::addressof(object)), sizeof(T)};
    }

    /// Throws FormatError if the number of bytes is not sizeof(T).
    static T from_bytes(std::string_view bytes) {
        check_size(bytes.size() == sizeof(T), bytes, sizeof(T));
        std::array<char, sizeof(T)> memory{};  // initialized, since GCC warns at -O3 otherwise
        bytes.copy(memory.data(), memory.size());
        return std::bit_cast<T>(memory);
    }
};

/// A type that its Serializer copies bytewise.
template <class T>
concept SerializedAsBytes = std::derived_from<Serializer<T>, MemorySerializer<T>>;

/// Appends an item with its size as prefix.
void append_item(std::string& bytes, std::string_view item);

/// Removes the first item from `bytes` and returns the item. Throws FormatError if the item is truncated.
[[nodiscard]] std::string_view take_item(std::string_view& bytes);

/// Removes the first byte, a number below `end`, and returns it. Throws FormatError if there is none.
[[nodiscard]] std::size_t take_number(std::string_view& bytes, std::size_t end);

/// Throws FormatError if bytes are left.
void check_all_read(std::string_view bytes);

/// A std::vector, std::deque or std::list of serializable elements.
template <class C>
concept SequenceContainer =
    std::ranges::forward_range<C> && Serializable<typename C::value_type> &&
    requires(C& container, typename C::value_type element) { container.push_back(std::move(element)); };

/// A std::set or std::unordered_set of serializable keys.
template <class C>
concept SetContainer = std::ranges::forward_range<C> && Serializable<typename C::key_type> &&
                       !requires { typename C::mapped_type; };

/// A std::map or std::unordered_map of serializable keys and values.
template <class C>
concept MapContainer = std::ranges::forward_range<C> && Serializable<typename C::key_type> &&
                       Serializable<typename C::mapped_type>;

template <class T>
[[nodiscard]] constexpr auto element_numbers() noexcept {
    return std::make_index_sequence<std::tuple_size_v<T>>();
}

template <class T, std::size_t... I>
[[nodiscard]] constexpr bool are_serializable(std::index_sequence<I...>) noexcept {
    return (Serializable<std::tuple_element_t<I, T>> && ...);
}

template <class T>
inline constexpr bool is_array_of_bytes = false;
template <class T, std::size_t n>
inline constexpr bool is_array_of_bytes<std::array<T, n>> = SerializedAsBytes<T>;

/// A std::pair, std::tuple or std::array of serializable elements that is not copied bytewise.
template <class T>
concept TupleOfSerializable = !is_array_of_bytes<T> && requires { std::tuple_size<T>::value; } &&
                              are_serializable<T>(element_numbers<T>());

}  // namespace detail

/// Serializes a trivially copyable object as its bytes in memory.
template <detail::CopiedAsBytes T>
struct Serializer<T> : detail::MemorySerializer<T> {};

/// Serializes a string as its characters.
template <>
struct Serializer<std::string> {
    /// Returns the characters.
    static std::string to_bytes(const std::string& object) { return object; }
    /// Returns a string of all bytes.
    static std::string from_bytes(std::string_view bytes) { return std::string(bytes); }
};

/// Serializes the elements one after the other, each with a size prefix unless all are copied bytewise at
/// once.
template <detail::SequenceContainer C>
struct Serializer<C> {
    using T = typename C::value_type;  ///< The type of an element.
    /// Whether the elements are copied bytewise, all at once.
    static constexpr bool at_once =
        std::ranges::contiguous_range<C> && detail::SerializedAsBytes<T> && std::default_initializable<T>;

    /// Returns the bytes of all elements.
    static std::string to_bytes(const C& objects) {
        std::string bytes;
        if constexpr (at_once) {
            bytes.assign(reinterpret_cast<const char*>(objects.data()), objects.size() * sizeof(T));
        } else {
            for (const T& object : objects) detail::append_item(bytes, Serializer<T>::to_bytes(object));
        }
        return bytes;
    }

    /// Throws FormatError if the bytes end within an element.
    static C from_bytes(std::string_view bytes) {
        C objects;
        if constexpr (at_once) {
            detail::check_size(bytes.size() % sizeof(T) == 0, bytes, sizeof(T));
            objects.resize(bytes.size() / sizeof(T));
            bytes.copy(reinterpret_cast<char*>(objects.data()), bytes.size());
        } else {
            while (!bytes.empty()) objects.push_back(Serializer<T>::from_bytes(detail::take_item(bytes)));
        }
        return objects;
    }
};

/// Serializes the keys of a set one after the other.
template <detail::SetContainer C>
struct Serializer<C> {
    using Key = typename C::key_type;  ///< The type of a key.

    /// Returns the bytes of all keys.
    static std::string to_bytes(const C& keys) {
        std::string bytes;
        for (const Key& key : keys) detail::append_item(bytes, Serializer<Key>::to_bytes(key));
        return bytes;
    }

    /// Throws FormatError if the bytes end within a key.
    static C from_bytes(std::string_view bytes) {
        C keys;
        while (!bytes.empty()) keys.insert(Serializer<Key>::from_bytes(detail::take_item(bytes)));
        return keys;
    }
};

/// Serializes the entries of a map one after the other, each as its key and its value.
template <detail::MapContainer C>
struct Serializer<C> {
    using Key = typename C::key_type;        ///< The type of a key.
    using Mapped = typename C::mapped_type;  ///< The type of a value.

    /// Returns the bytes of all entries.
    static std::string to_bytes(const C& entries) {
        std::string bytes;
        for (const auto& [key, value] : entries) {
            detail::append_item(bytes, Serializer<Key>::to_bytes(key));
            detail::append_item(bytes, Serializer<Mapped>::to_bytes(value));
        }
        return bytes;
    }

    /// Throws FormatError if the bytes end within an entry.
    static C from_bytes(std::string_view bytes) {
        C entries;
        while (!bytes.empty()) {
            Key key = Serializer<Key>::from_bytes(detail::take_item(bytes));
            entries.emplace(std::move(key), Serializer<Mapped>::from_bytes(detail::take_item(bytes)));
        }
        return entries;
    }
};

/// Serializes the elements of a std::pair, std::tuple or std::array one after the other.
template <detail::TupleOfSerializable T>
struct Serializer<T> {
    /// Returns the bytes of all elements.
    static std::string to_bytes(const T& elements) {
        return to_bytes(elements, detail::element_numbers<T>());
    }

    /// Throws FormatError if the bytes are not those of exactly these elements.
    static T from_bytes(std::string_view bytes) { return from_bytes(bytes, detail::element_numbers<T>()); }

  private:
    template <std::size_t... I>
    static std::string to_bytes(const T& elements, std::index_sequence<I...>) {
        std::string bytes;
        (detail::append_item(bytes, Serializer<std::tuple_element_t<I, T>>::to_bytes(std::get<I>(elements))),
         ...);
        return bytes;
    }

    template <std::size_t... I>
    static T from_bytes(std::string_view bytes, std::index_sequence<I...>) {
        T elements{Serializer<std::tuple_element_t<I, T>>::from_bytes(detail::take_item(bytes))...};
        detail::check_all_read(bytes);
        return elements;
    }
};

/// Serializes an array whose elements are copied bytewise as its bytes in memory.
template <class T, std::size_t n>
    requires detail::SerializedAsBytes<T>
struct Serializer<std::array<T, n>> : detail::MemorySerializer<std::array<T, n>> {};

/// Serializes a std::optional as whether it has a value, and the value.
template <Serializable T>
struct Serializer<std::optional<T>> {
    /// Returns one byte, and the bytes of the value if there is one.
    static std::string to_bytes(const std::optional<T>& object) {
        std::string bytes(1, object ? '\1' : '\0');
        if (object) bytes += Serializer<T>::to_bytes(*object);
        return bytes;
    }

    /// Throws FormatError if the bytes are not those of an optional.
    static std::optional<T> from_bytes(std::string_view bytes) {
        if (detail::take_number(bytes, 2) == 0) {
            detail::check_all_read(bytes);
            return std::nullopt;
        }
        return Serializer<T>::from_bytes(bytes);
    }
};

/// Serializes a std::variant as the number of its alternative, and the value.
template <Serializable... T>
struct Serializer<std::variant<T...>> {
    using Variant = std::variant<T...>;  ///< The serialized type.
    static_assert(sizeof...(T) < 256, "dptk: a variant of more than 255 alternatives has no Serializer");

    /// Throws std::bad_variant_access if the variant is valueless by exception.
    static std::string to_bytes(const Variant& object) {
        return std::visit(
            [&]<class Value>(const Value& value) {
                std::string bytes(1, static_cast<char>(object.index()));
                bytes += Serializer<Value>::to_bytes(value);
                return bytes;
            },
            object);
    }

    /// Throws FormatError if the bytes are not those of a variant with these alternatives.
    static Variant from_bytes(std::string_view bytes) {
        using Read = Variant (*)(std::string_view);
        static constexpr Read read[] = {&read_as<T>...};
        return read[detail::take_number(bytes, sizeof...(T))](bytes);
    }

  private:
    template <class Value>
    static Variant read_as(std::string_view bytes) {
        return Serializer<Value>::from_bytes(bytes);
    }
};

/// Serializes a std::vector<bool>, each element as one byte.
template <>
struct Serializer<std::vector<bool>> {
    using Flags = std::vector<char>;  ///< The serialized type.

    /// Returns a byte per flag, 0 or 1.
    static std::string to_bytes(const std::vector<bool>& objects) {
        return Serializer<Flags>::to_bytes(Flags(objects.begin(), objects.end()));
    }

    /// Returns a flag per byte, which is true unless the byte is 0.
    static std::vector<bool> from_bytes(std::string_view bytes) {
        return std::vector<bool>(bytes.begin(), bytes.end());
    }
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/serializer.ipp"
#endif
