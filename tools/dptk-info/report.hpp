// Reports that rank 0 prints while facts and measurements arrive. The other ranks use the base class, which
// prints nothing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "facts.hpp"
#include "options.hpp"

namespace info {

class Report {
  public:
    Report() = default;
    Report(const Report&) = delete;
    Report& operator=(const Report&) = delete;
    virtual ~Report() = default;

    virtual void facts(const JobFacts&) {}
    virtual void compute_begins() {}
    virtual void compute(const JobFacts&) {}
    virtual void messages_begin() {}
    virtual void messages(const MessageResult&) {}
    virtual void all_reduce_begins() {}
    virtual void all_reduce(const AllReduceResult&) {}
    /// Is called last, with all facts and remarks.
    virtual void end(const JobFacts&, const std::vector<std::string>&) {}
};

/// Prints sections of text, each as soon as its data is known, so that the output of a job that hangs shows
/// the sections that were complete before.
[[nodiscard]] std::unique_ptr<Report> make_text_report();

/// Prints one JSON object to stdout at the end, and progress to stderr.
[[nodiscard]] std::unique_ptr<Report> make_json_report();

}  // namespace info
