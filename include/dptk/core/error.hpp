/// The exceptions that dptk throws. Every message says what was expected, what was found, and on which
/// rank.
///
/// An *agreed* error is detected by a collective check and thrown on all ranks of a group; the group stays
/// usable. A *one-sided* error (a lost peer, a timeout, a failed backend) breaks the group: later calls
/// throw immediately.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

struct ErrorAccess;

}  // namespace detail

/// What an error is about, where that is known.
struct ErrorContext {
    std::optional<int> rank = {};          ///< See Error::rank().
    std::optional<int> peer = {};          ///< See Error::peer().
    std::string parameter = {};            ///< See MismatchError::parameter().
    std::optional<std::size_t> step = {};  ///< See Error::step().
};

/// The base class of all errors of dptk. Ranks are numbered as in the text: within the group in errors about
/// a call of that group, and within the job in errors about a lost rank.
class DPTK_EXPORT Error : public std::runtime_error {
  public:
    /// Makes an error that is not agreed, with this text and context.
    explicit Error(const std::string& message, ErrorContext context = {});

    /// Returns whether all ranks throw this same error, so that it is enough if one rank reports it. The
    /// group stays usable then.
    [[nodiscard]] bool agreed() const noexcept { return state_->is_agreed; }

    /// Returns the rank that has found the problem, if it is known. In an agreed error, the first rank that
    /// has the problem.
    [[nodiscard]] std::optional<int> rank() const noexcept { return state_->context.rank; }

    /// Returns the other rank that takes part in the problem, if there is one: the rank that was lost, or
    /// that failed first; or the other end of a message.
    [[nodiscard]] std::optional<int> peer() const noexcept { return state_->context.peer; }

    /// Returns the name of the parameter that the error is about; empty if it is about none.
    [[nodiscard]] const std::string& parameter() const noexcept { return state_->context.parameter; }

    /// Returns the training step in which the error was found, if it was found in one. Steps are counted from
    /// 0.
    [[nodiscard]] std::optional<std::size_t> step() const noexcept { return state_->context.step; }

  private:
    friend struct detail::ErrorAccess;

    struct State {
        ErrorContext context;
        bool is_agreed = false;
    };

    // Shared by all copies, so that a copy cannot throw.
    std::shared_ptr<State> state_;
};

/// A call has an invalid argument: a bad value, size or combination.
class DPTK_EXPORT ArgumentError : public Error {
  public:
    using Error::Error;
};

/// The ranks disagree about a value that must be equal on all of them. Collective checks throw it on all
/// ranks. The receiver of a message throws it alone if the message has another size than the buffer.
class DPTK_EXPORT MismatchError : public Error {
  public:
    using Error::Error;
};

/// A call did not finish before its timeout.
class DPTK_EXPORT TimeoutError : public Error {
  public:
    using Error::Error;
};

/// Another rank was lost: it exited by an exception, crashed, or closed its group while this rank waited for
/// it.
class DPTK_EXPORT PeerLostError : public Error {
  public:
    using Error::Error;
};

/// The members of an elastic job change: a rank was lost, leaves or joins. The group's calls throw it, on all
/// ranks, until ElasticState::restore() or reform() has formed the group again.
class DPTK_EXPORT MembershipChanged : public PeerLostError {
  public:
    using PeerLostError::PeerLostError;
};

/// A file or a message was read, and has an invalid format. The text names the file and the offset.
class DPTK_EXPORT FormatError : public Error {
  public:
    using Error::Error;
};

/// A library that dptk calls (MPI, oneDNN, ...), or the operating system, reported an error.
class DPTK_EXPORT BackendError : public Error {
  public:
    using Error::Error;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/error.ipp"
#endif
