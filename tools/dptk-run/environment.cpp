#include "environment.hpp"

#include <unistd.h>

#include <algorithm>
#include <string_view>

namespace run {

namespace {

std::string_view name_of(std::string_view entry) {
    return entry.substr(0, entry.find('='));
}

}  // namespace

Environment::Environment() {
    for (char** entry = environ; *entry != nullptr; ++entry) {
        if (!dptk::detail::is_stale_launcher_variable(name_of(*entry))) entries_.emplace_back(*entry);
    }
}

void Environment::set(const std::vector<dptk::detail::EnvironmentVariable>& variables) {
    for (const auto& [name, value] : variables) {
        std::erase_if(entries_, [&](const std::string& entry) { return name_of(entry) == name; });
        entries_.push_back(name + "=" + value);
    }
}

std::string Environment::value(const std::string& name) const {
    const auto found =
        std::ranges::find_if(entries_, [&](const std::string& entry) { return name_of(entry) == name; });
    return found == entries_.end() ? std::string() : found->substr(name.size() + 1);
}

bool Environment::contains(const std::string& name) const {
    return std::ranges::any_of(entries_, [&](const std::string& entry) { return name_of(entry) == name; });
}

std::vector<char*> Environment::pointers() {
    std::vector<char*> pointers;
    for (std::string& entry : entries_) pointers.push_back(entry.data());
    pointers.push_back(nullptr);
    return pointers;
}

}  // namespace run
