// Diagnostic tool: reports hosts, GPUs, libraries and ranks as dptk sees them, and problems with them:
//   dptk-info    or    mpirun -np 4 dptk-info
#include <dptk/comm/agreement.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <memory>

#include "all_reduce_test.hpp"
#include "compute_test.hpp"
#include "job.hpp"
#include "message_test.hpp"
#include "options.hpp"
#include "remarks.hpp"
#include "report.hpp"
#include "running_job.hpp"

namespace {

using info::Effort;
using info::Options;
using info::ParsedOptions;

void print(const ParsedOptions& parsed) {
    std::fputs(parsed.text.c_str(), parsed.exit_status == 0 ? stdout : stderr);
}

/// Returns the same result on all ranks: the first rank's usage error, or else the first other text to print,
/// such as the help, or else rank 0's options.
[[nodiscard]] ParsedOptions agree(dptk::ProcessGroup& group, const ParsedOptions& own) {
    const auto statuses = group.all_gather_value(own.exit_status);
    const auto texts = dptk::detail::all_gather_text(group, own.text);
    const int status = std::ranges::max(statuses);
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
        if (!texts[rank].empty() && statuses[rank] == status) return {{}, texts[rank], status};
    }
    std::array<int, 2> options{own.options->json, static_cast<int>(own.options->tests)};
    group.broadcast(options);
    return {Options{.json = options[0] != 0, .tests = static_cast<Effort>(options[1])}, "", 0};
}

[[nodiscard]] std::unique_ptr<info::Report> make_report(const info::Job& job, const Options& options) {
    if (!job.prints_report) return std::make_unique<info::Report>();
    return options.json ? info::make_json_report() : info::make_text_report();
}

void inspect(info::Job& job, const Options& options) {
    const std::unique_ptr<info::Report> report = make_report(job, options);
    info::JobFacts facts = info::gather_job_facts(job);
    report->facts(facts);
    if (options.tests != Effort::none) {
        report->compute_begins();
        facts.compute = info::run_compute_test(job.group, facts, options.tests);
        report->compute(facts);
    }
    if (options.tests != Effort::none && job.group.size() > 1) {
        report->messages_begin();
        facts.messages =
            info::run_message_test(job.group, facts, options.tests,
                                   [&](const info::MessageResult& result) { report->messages(result); });
        report->all_reduce_begins();
        facts.all_reduce = info::run_all_reduce_test(
            job.group, options.tests,
            [&](const info::AllReduceResult& result) { report->all_reduce(result); });
    }
    report->end(facts, info::find_remarks(facts));
}

}  // namespace

int main(int argc, char** argv) {
    const ParsedOptions own = info::parse_options(argc, argv);
    int rank = 0;
    try {
        if (own.options && !own.options->job.empty()) {
            const info::RunningJob job = info::read_running_job(own.options->job);
            std::puts((own.options->json ? info::to_json(job) : info::to_text(job)).c_str());
            return 0;
        }
        info::Job job = info::join_job();
        rank = job.group.rank();
        const ParsedOptions agreed = agree(job.group, own);
        if (agreed.options) {
            inspect(job, *agreed.options);
        } else if (job.prints_report) {
            print(agreed);
        }
        return agreed.exit_status;
    } catch (const dptk::Error& error) {
        if (!error.agreed() || rank == 0) std::fprintf(stderr, "dptk-info: %s\n", error.what());
    } catch (const std::exception& error) {
        std::fprintf(stderr, "dptk-info: rank %d: %s\n", rank, error.what());
    }
    return 1;
}
