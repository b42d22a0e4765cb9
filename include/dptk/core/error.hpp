/// The exceptions that dptk throws. Every message says what was expected, what was found, and on which rank.
///
/// An *agreed* error is thrown alike on all ranks of a group, by a collective check; the group stays usable.
/// A *one-sided* error (a lost peer, a deadline, a failed backend) breaks the group: later calls throw at
/// once.
#pragma once

#include <memory>
#include <stdexcept>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// The base of all errors of dptk.
class DPTK_EXPORT Error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;

    /// Whether all ranks throw this same error, so that one of them may tell it for all.
    [[nodiscard]] bool agreed() const noexcept { return agreement_ != nullptr; }

    /// For who throws it on all ranks alike.
    void mark_agreed();

    /// Lives as long as this error and its copies; null where the error is not agreed.
    [[nodiscard]] const std::shared_ptr<const void>& agreement() const noexcept { return agreement_; }

  private:
    std::shared_ptr<const void> agreement_;
};

/// A call that cannot be carried out as asked: a bad value, size or combination.
class DPTK_EXPORT ArgumentError : public Error {
  public:
    using Error::Error;
};

/// The ranks disagree about something that must be equal on all of them. Agreed: all ranks throw it.
class DPTK_EXPORT MismatchError : public Error {
  public:
    using Error::Error;
};

/// A deadline passed.
class DPTK_EXPORT TimeoutError : public Error {
  public:
    using Error::Error;
};

/// Another rank is gone: it left by an exception, crashed, or closed its group while this rank waited for it.
class DPTK_EXPORT PeerLostError : public Error {
  public:
    using Error::Error;
};

/// A file or a message that does not have the format it should have. The text names the file and the offset.
class DPTK_EXPORT FormatError : public Error {
  public:
    using Error::Error;
};

/// The library below (MPI, oneDNN, ...) reported an error.
class DPTK_EXPORT BackendError : public Error {
  public:
    using Error::Error;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/error.ipp"
#endif
