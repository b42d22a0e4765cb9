/// A registry of named entries. A header adds its entry when a program includes the header. Each name is
/// added only once, since several shared libraries may include the same header.
#pragma once

#include <mutex>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE::detail {

template <class Entry>
class NamedEntries {
  public:
    /// Adds the entry, unless one of that name exists. Returns whether it was added.
    bool add(const Entry& entry) {
        const std::lock_guard lock(mutex_);
        if (detail::contains(entries_, entry.name, &Entry::name)) return false;
        entries_.push_back(entry);
        return true;
    }

    [[nodiscard]] std::vector<Entry> all() const {
        const std::lock_guard lock(mutex_);
        return entries_;
    }

  private:
    mutable std::mutex mutex_;
    std::vector<Entry> entries_;
};

}  // namespace DPTK_NAMESPACE::detail
