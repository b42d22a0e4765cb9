/// Collectives and messages of serialized objects (broadcast_object, send_object, ...), for every type that
/// has a Serializer. Communicators and ProcessGroup inherit them. Use them for small or rare data, such as
/// settings, names and statistics; the group's own verbs are faster for arrays of elements.
///
/// All calls block. All ranks must use the same T, and machines of the same architecture. Errors of
/// collectives are agreed: if a Serializer throws on any rank, or an argument is invalid, all ranks throw the
/// same error, and the group stays usable. ArgumentError and FormatError keep their types; every other
/// exception becomes an Error.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/detail/root.hpp"
#include "dptk/comm/serializer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/renamed.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// The error of one rank: its kind and its text.
struct Problem {
    enum class Kind : std::uint64_t { none, argument, format, other };

    Kind kind = Kind::none;
    std::string text = {};
};

/// Runs `fn` and returns the error that it throws, if any.
template <class Fn>
[[nodiscard]] Problem problem_of(Fn&& fn) {
    const auto problem = [](Problem::Kind kind, const std::exception& error) {
        const std::string_view text = error.what();
        return Problem{kind, std::string(text.empty() ? "an exception without a text" : text)};
    };
    try {
        fn();
        return {};
    } catch (const ArgumentError& error) {
        return problem(Problem::Kind::argument, error);
    } catch (const FormatError& error) {
        return problem(Problem::Kind::format, error);
    } catch (const std::exception& error) {
        return problem(Problem::Kind::other, error);
    } catch (...) {
        return {Problem::Kind::other, "an exception that is not derived from std::exception"};
    }
}

/// Throws one error with the problems of all ranks, on all ranks, unless `worst` is none. `worst` is the
/// maximum of the problem kinds of all ranks, and determines the type of the error. Collective.
template <class Group>
void throw_problems(Group& group, std::string_view verb, Problem::Kind worst, const Problem& own) {
    if (worst == Problem::Kind::none) return;
    const auto [problems, context] = gather_problems(group, own.text);
    const std::string what = text(verb, ": ", problems);
    if (worst == Problem::Kind::argument) throw_agreed(group, ArgumentError(what, context));
    if (worst == Problem::Kind::format) throw_agreed(group, FormatError(what, context));
    throw_agreed(group, Error(what, context));
}

/// The header that each rank sends to all others before the bytes of its object.
struct ObjectHeader {
    std::int64_t root;
    std::uint64_t bytes;
    Problem::Kind problem;
};

/// Returns the number of bytes of each rank's object, or throws on all ranks if a rank has a problem.
/// Collective.
template <class Group>
[[nodiscard]] std::vector<std::size_t> agree_on_bytes(Group& group, std::string_view verb, int root,
                                                      std::size_t bytes, const Problem& own) {
    const std::vector<ObjectHeader> headers = group.all_gather_value(ObjectHeader{root, bytes, own.kind});
    std::vector<std::size_t> sizes;
    auto worst = Problem::Kind::none;
    for (const ObjectHeader& header : headers) {
        if (header.root != headers[0].root)
            throw_agreed(group, MismatchError(text(verb, ": rank ", sizes.size(), " has root ", header.root,
                                                   ", but rank 0 has root ", headers[0].root)));
        sizes.push_back(header.bytes);
        worst = std::max(worst, header.problem);
    }
    const std::string wrong_root = root_problem(root, group.size());
    if (!wrong_root.empty()) throw_agreed(group, ArgumentError(text(verb, ": ", wrong_root)));
    throw_problems(group, verb, worst, own);
    return sizes;
}

/// Returns the result of `read`, or throws on all ranks if `read` throws on any rank. Collective.
template <class T, class Group, class Read>
[[nodiscard]] T read_on_all(Group& group, std::string_view verb, Read&& read) {
    std::optional<T> object;
    const Problem own = problem_of([&] { object.emplace(read()); });
    const auto worst = group.all_reduce_value(static_cast<std::uint64_t>(own.kind), ReduceOp::max);
    throw_problems(group, verb, static_cast<Problem::Kind>(worst), own);
    return std::move(*object);
}

template <class T>
constexpr void require_serializer() {
    static_assert(Serializable<T>,
                  "dptk: this type has no Serializer: compose it of strings, trivially copyable types, and "
                  "containers, pairs, tuples, optionals and variants of such types, or specialize "
                  "dptk::Serializer for it, with to_bytes() and from_bytes()");
}

}  // namespace detail

/// The collectives and messages of objects of BasicCommunicator and ProcessGroup. `Self` is a group.
template <class Self>
class ObjectVerbs {
  public:
    /// Sends the root's object to all ranks, where it replaces `object`. Collective; blocks.
    template <class T>
    void broadcast_object(T& object, int root = 0) {
        detail::require_serializer<T>();
        constexpr std::string_view verb = "broadcast_object";
        const bool here = self().rank() == root;
        std::string bytes;
        const detail::Problem problem = detail::problem_of([&] {
            if (here) bytes = Serializer<T>::to_bytes(object);
        });
        const std::vector<std::size_t> sizes =
            detail::agree_on_bytes(self(), verb, root, bytes.size(), problem);
        bytes.resize(sizes[static_cast<std::size_t>(root)]);
        self().broadcast(bytes, root);
        using Received = std::optional<T>;
        Received received = detail::read_on_all<Received>(self(), verb, [&] {
            return here ? Received() : Received(std::in_place, Serializer<T>::from_bytes(bytes));
        });
        if (received) object = std::move(*received);
    }

    /// Returns the objects of all ranks, in rank order, on all ranks. Collective; blocks.
    template <class T>
    [[nodiscard]] std::vector<T> all_gather_object(const T& object) {
        detail::require_serializer<T>();
        constexpr std::string_view verb = "all_gather_object";
        std::string bytes;
        const detail::Problem problem = detail::problem_of([&] { bytes = Serializer<T>::to_bytes(object); });
        UnevenElements<char> all{.elements = {},
                                 .counts = detail::agree_on_bytes(self(), verb, 0, bytes.size(), problem)};
        all.elements.resize(std::accumulate(all.counts.begin(), all.counts.end(), std::size_t{0}));
        self().all_gather(bytes, all.elements, all.counts);
        return detail::read_on_all<std::vector<T>>(self(), verb, [&] {
            std::vector<T> objects;
            for (int rank = 0; rank < self().size(); ++rank) {
                const std::span<const char> theirs = all.of(rank);
                objects.push_back(Serializer<T>::from_bytes({theirs.data(), theirs.size()}));
            }
            return objects;
        });
    }

    /// Returns the objects of all ranks, in rank order, on the root, and an empty vector on the other ranks.
    /// The root needs memory for size() times the largest object. Collective; blocks.
    template <class T>
    [[nodiscard]] std::vector<T> gather_object(const T& object, int root = 0) {
        detail::require_serializer<T>();
        constexpr std::string_view verb = "gather_object";
        std::string bytes;
        const detail::Problem problem = detail::problem_of([&] { bytes = Serializer<T>::to_bytes(object); });
        const std::vector<std::size_t> sizes =
            detail::agree_on_bytes(self(), verb, root, bytes.size(), problem);
        const std::size_t largest = *detail::max_element(sizes);
        bytes.resize(largest);
        std::string all;
        if (self().rank() == root) all.resize(largest * sizes.size());
        self().gather(bytes, all, root);
        return detail::read_on_all<std::vector<T>>(self(), verb, [&] {
            std::vector<T> objects;
            if (self().rank() != root) return objects;
            for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
                const std::string_view theirs = std::string_view(all).substr(rank * largest, sizes[rank]);
                objects.push_back(Serializer<T>::from_bytes(theirs));
            }
            return objects;
        });
    }

    /// Returns objects[rank()] of the root's `objects`, which must have size() elements. The `objects` of the
    /// other ranks are ignored: they may call scatter_object<T>({}). The root needs memory for size()
    /// times the largest object. Collective; blocks.
    template <class T>
    [[nodiscard]] T scatter_object(const std::vector<T>& objects, int root = 0) {
        detail::require_serializer<T>();
        constexpr std::string_view verb = "scatter_object";
        const auto ranks = static_cast<std::size_t>(self().size());
        std::vector<std::string> items;
        std::size_t largest = 0;
        const detail::Problem problem = detail::problem_of([&] {
            if (self().rank() != root) return;
            if (objects.size() != ranks)
                throw ArgumentError(
                    detail::text("expected ", ranks, " objects, one for each rank, got ", objects.size()));
            for (const T& object : objects) {
                detail::append_item(items.emplace_back(), Serializer<T>::to_bytes(object));
                largest = std::max(largest, items.back().size());
            }
        });
        largest =
            detail::agree_on_bytes(self(), verb, root, largest, problem)[static_cast<std::size_t>(root)];
        std::string all;
        for (std::string& item : items) {
            item.resize(largest);
            all += item;
        }
        std::string own(largest, '\0');
        self().scatter(all, own, root);
        return detail::read_on_all<T>(self(), verb, [&] {
            std::string_view bytes = own;
            return Serializer<T>::from_bytes(detail::take_item(bytes));
        });
    }

    /// Sends an object to rank `to`, which calls recv_object(). Blocks until the object has been sent. Throws
    /// what the Serializer throws; nothing is sent then.
    template <class T>
    void send_object(const T& object, int to, int tag = 0) {
        detail::require_serializer<T>();
        const std::string bytes = Serializer<T>::to_bytes(object);
        const std::uint64_t size[] = {bytes.size()};
        self().send(size, to, tag);
        if (!bytes.empty()) self().send(bytes, to, tag);
    }

    /// Receives an object that rank `from`, or any rank, sends by send_object(), and returns the sender.
    /// Blocks. Throws what the Serializer throws: FormatError if the bytes are not those of a T. The message
    /// has been received then, and the group stays usable.
    template <class T>
    int recv_object(T& object, int from = any_rank, int tag = 0) {
        detail::require_serializer<T>();
        std::uint64_t size[] = {0};
        const int sender = self().recv(size, from, tag);
        std::string bytes(size[0], '\0');
        if (!bytes.empty()) static_cast<void>(self().recv(bytes, sender, tag));
        object = Serializer<T>::from_bytes(bytes);
        return sender;
    }

  private:
    [[nodiscard]] Self& self() { return static_cast<Self&>(*this); }
};

// Former spellings, until version 0.3.
DPTK_MEMBER_NOW(broadcast_object)
DPTK_MEMBER_NOW(all_gather_object)
DPTK_MEMBER_NOW(gather_object)
DPTK_MEMBER_NOW(scatter_object)

}  // namespace DPTK_NAMESPACE
