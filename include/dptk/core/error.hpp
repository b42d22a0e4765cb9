/// The exceptions that dptk throws. Every message says what was expected, what was found, and on which
/// rank.
///
/// An *agreed* error is detected by a collective check and thrown on all ranks of a group; the group stays
/// usable. A *one-sided* error (a lost peer, a timeout, a failed backend) breaks the group: later calls
/// throw immediately.
#pragma once

#include <memory>
#include <stdexcept>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// The base class of all errors of dptk.
class DPTK_EXPORT Error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;

    /// Returns whether all ranks throw this same error, so that it is enough if one rank reports it.
    [[nodiscard]] bool agreed() const noexcept { return agreement_ != nullptr; }

    /// Marks the error as agreed. Called by code that throws the same error on all ranks.
    void mark_agreed();

    /// Returns an object that lives as long as this error and its copies; null if the error is not agreed.
    [[nodiscard]] const std::shared_ptr<const void>& agreement() const noexcept { return agreement_; }

  private:
    std::shared_ptr<const void> agreement_;
};

/// A call has an invalid argument: a bad value, size or combination.
class DPTK_EXPORT ArgumentError : public Error {
  public:
    using Error::Error;
};

/// The ranks disagree about a value that must be equal on all of them. Agreed: all ranks throw it.
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

/// A file or a message has an invalid format. The text names the file and the offset.
class DPTK_EXPORT FormatError : public Error {
  public:
    using Error::Error;
};

/// A library that dptk calls (MPI, oneDNN, ...) reported an error.
class DPTK_EXPORT BackendError : public Error {
  public:
    using Error::Error;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/error.ipp"
#endif
