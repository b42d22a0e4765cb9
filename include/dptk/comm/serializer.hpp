/// Serializer converts objects to bytes and back, for collectives on objects. It supports std::string,
/// trivially copyable types, and vectors of supported types. Programs specialize it for other types.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <memory>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
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

/// Types that are copied bytewise. Views and pointers are excluded: they would arrive as pointers into the
/// memory of another process.
template <class T>
concept CopiedAsBytes = std::is_trivially_copyable_v<T> && std::is_object_v<T> && !std::is_array_v<T> &&
                        !std::is_pointer_v<T> && !std::ranges::view<T>;

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

/// Appends an item with its size as prefix.
void append_item(std::string& bytes, std::string_view item);

/// Removes the first item from `bytes` and returns the item. Throws FormatError if the item is truncated.
[[nodiscard]] std::string_view take_item(std::string_view& bytes);

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
template <Serializable T>
struct Serializer<std::vector<T>> {
    /// Whether the elements are copied bytewise, all at once.
    static constexpr bool at_once =
        std::derived_from<Serializer<T>, detail::MemorySerializer<T>> && std::default_initializable<T>;

    /// Returns the bytes of all elements.
    static std::string to_bytes(const std::vector<T>& objects) {
        std::string bytes;
        if constexpr (at_once) {
            bytes.assign(reinterpret_cast<const char*>(objects.data()), objects.size() * sizeof(T));
        } else {
            for (const T& object : objects) detail::append_item(bytes, Serializer<T>::to_bytes(object));
        }
        return bytes;
    }

    /// Throws FormatError if the bytes end within an element.
    static std::vector<T> from_bytes(std::string_view bytes) {
        std::vector<T> objects;
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
