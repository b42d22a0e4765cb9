// What rank 0 prints while facts and figures come in. The base class prints nothing: the other ranks' report.
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
    virtual void all_reduce_begins() {}
    virtual void all_reduce(const AllReduceResult&) {}
    /// Everything is known.
    virtual void end(const JobFacts&, const std::vector<std::string>&) {}
};

/// Sections of text, each as soon as it is known, so that a job that hangs has told what came before.
[[nodiscard]] std::unique_ptr<Report> make_text_report();

/// One JSON object on stdout at the end, and progress on stderr.
[[nodiscard]] std::unique_ptr<Report> make_json_report();

}  // namespace info
