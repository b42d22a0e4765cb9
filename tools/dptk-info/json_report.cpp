#include <dptk/core/detail/text.hpp>

#include <cstdio>

#include "facts_json.hpp"
#include "format.hpp"
#include "report.hpp"

namespace info {

namespace {

class JsonReport final : public Report {
  public:
    void compute_begins() override { progress("compute test"); }

    void messages_begin() override { progress("message test"); }

    void all_reduce_begins() override { progress("all-reduce test"); }

    void all_reduce(const AllReduceResult& result) override {
        progress(dptk::detail::text("all-reduce of ", bytes_text(result.bytes), ": ",
                                    seconds_text(result.seconds)));
    }

    void end(const JobFacts& job, const std::vector<std::string>& remarks) override {
        std::puts(text_from(job, remarks).c_str());
    }

  private:
    static void progress(const std::string& text) { std::fprintf(stderr, "dptk-info: %s\n", text.c_str()); }
};

}  // namespace

std::unique_ptr<Report> make_json_report() {
    return std::make_unique<JsonReport>();
}

}  // namespace info
