/// Serializer turns objects into bytes and back, for collectives on objects. It knows std::string, types that
/// may be copied as they lie in memory, and vectors of all that it knows; a specialisation adds one's own.
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

/// How a T becomes bytes, and bytes become a T. Specialise it for a type of your own:
///   template <> struct dptk::Serializer<Config> {
///       static std::string to_bytes(const Config& config);
///       static Config from_bytes(std::string_view bytes);  // throws where these are no Config
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

/// A view would arrive as a pointer into another process.
template <class T>
concept CopiedAsBytes = std::is_trivially_copyable_v<T> && std::is_object_v<T> && !std::is_array_v<T> &&
                        !std::is_pointer_v<T> && !std::ranges::view<T>;

void check_size(bool right, std::string_view bytes, std::size_t expected);

/// Objects as they lie in memory, all of one size.
template <class T>
struct MemorySerializer {
    static std::string to_bytes(const T& object) {
        return {reinterpret_cast<const char*>(std::addressof(object)), sizeof(T)};
    }

    /// Throws FormatError for another number of bytes.
    static T from_bytes(std::string_view bytes) {
        check_size(bytes.size() == sizeof(T), bytes, sizeof(T));
        std::array<char, sizeof(T)> memory{};  // else GCC at -O3 warns that it may be uninitialized
        bytes.copy(memory.data(), memory.size());
        return std::bit_cast<T>(memory);
    }
};

/// Bytes that tell their size.
void append_item(std::string& bytes, std::string_view item);

/// Cuts the first item off. Throws FormatError where it is not whole.
[[nodiscard]] std::string_view take_item(std::string_view& bytes);

}  // namespace detail

/// An object as it lies in memory.
template <detail::CopiedAsBytes T>
struct Serializer<T> : detail::MemorySerializer<T> {};

/// The characters as they are.
template <>
struct Serializer<std::string> {
    /// The characters.
    static std::string to_bytes(const std::string& object) { return object; }
    /// A string of all bytes.
    static std::string from_bytes(std::string_view bytes) { return std::string(bytes); }
};

/// Elements that are copied as they lie in memory, one after the other; others with their sizes.
template <Serializable T>
struct Serializer<std::vector<T>> {
    /// Whether the elements are copied as they lie in memory.
    static constexpr bool at_once =
        std::derived_from<Serializer<T>, detail::MemorySerializer<T>> && std::default_initializable<T>;

    /// All elements, one after the other.
    static std::string to_bytes(const std::vector<T>& objects) {
        std::string bytes;
        if constexpr (at_once) {
            bytes.assign(reinterpret_cast<const char*>(objects.data()), objects.size() * sizeof(T));
        } else {
            for (const T& object : objects) detail::append_item(bytes, Serializer<T>::to_bytes(object));
        }
        return bytes;
    }

    /// Throws FormatError for bytes that end within an element.
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

/// A byte for each flag.
template <>
struct Serializer<std::vector<bool>> {
    using Flags = std::vector<char>;  ///< As they travel.

    /// A byte for each flag, 0 or 1.
    static std::string to_bytes(const std::vector<bool>& objects) {
        return Serializer<Flags>::to_bytes(Flags(objects.begin(), objects.end()));
    }

    /// A flag for each byte, which is true unless the byte is 0.
    static std::vector<bool> from_bytes(std::string_view bytes) {
        return std::vector<bool>(bytes.begin(), bytes.end());
    }
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/serializer.ipp"
#include "dptk/core/error.hpp"
#endif
