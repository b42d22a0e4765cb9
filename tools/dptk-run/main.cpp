// Launcher: dptk-run starts a program as several ranks on this host, like torchrun:
//   dptk-run --nproc-per-node 4 -- ./my_training --epochs 10
#include <dptk/control/net/host.hpp>
#include <dptk/control/net/reserved_port.hpp>
#include <dptk/control/process/temporary_directory.hpp>
#include <dptk/core/detail/text.hpp>

#include <fcntl.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <optional>

#include "attempt.hpp"
#include "console.hpp"
#include "guard.hpp"
#include "job.hpp"
#include "nodes.hpp"
#include "options.hpp"
#include "orphans.hpp"
#include "program.hpp"
#include "report.hpp"
#include "signals.hpp"

namespace {

using dptk::detail::text;

/// Opens /dev/null for each of stdin, stdout and stderr that is closed. Otherwise the next file to be opened
/// would get that descriptor.
void open_standard_descriptors() {
    int descriptor = 0;
    while (descriptor >= 0 && descriptor <= STDERR_FILENO) descriptor = open("/dev/null", O_RDWR);
    if (descriptor >= 0) close(descriptor);
}

run::AttemptResult run_once(const run::Job& job, int restart_count, const std::string& reports_dir,
                            const run::Signals& signals, run::Guard& guard, run::Console& console,
                            run::ElasticMembers* members) {
    std::optional<dptk::detail::ReservedPort> port;
    if (job.options.master_port == 0) port.emplace();
    const run::Options& options = job.options;
    const run::Rendezvous rendezvous{
        .place = {.master_addr =
                      options.master_addr.empty() ? dptk::detail::loopback_address() : options.master_addr,
                  .master_port = port ? port->number() : options.master_port,
                  .run_id = job.run_id,
                  .restart_count = restart_count,
                  .max_restarts = options.max_restarts},
        .reports_dir = reports_dir};
    return run::Attempt(job, rendezvous, signals, guard, console, members).run();
}

struct Ending {
    int exit_status = 1;
    bool by_signal = false;
};

Ending run_job(run::Job job, const run::Signals& signals, run::Console& console) {
    const bool has_node_rank = job.options.node_rank >= 0;
    const dptk::detail::TemporaryDirectory reports("dptk-run");
    run::Guard guard(reports.path());
    run::adopt_orphans();
    for (int restart_count = 0;; ++restart_count) {
        std::optional<run::ElasticMembers> members;
        if (job.options.elastic) members.emplace(job);
        if (members && !has_node_rank) job.options.node_rank = members->node();
        const run::AttemptResult result = run_once(job, restart_count, reports.path(), signals, guard,
                                                   console, members ? &*members : nullptr);
        if (!result.failed) return {result.signal == 0 ? 0 : 128 + result.signal, result.signal != 0};
        const auto failure = dptk::detail::find_first_failure(result.ends, result.stopped);
        // A rank that was stopped for too long has been reported already.
        if (failure) console.say(run::failure_report(job, result, *failure));
        const bool restarts = !job.options.elastic;  // its ranks have been replaced one by one
        if (result.signal != 0 || restart_count == job.options.max_restarts || !restarts)
            return {failure ? failure->who.end.exit_status() : 1, result.signal != 0};
        console.say(
            text("restarting all ranks (restart ", restart_count + 1, " of ", job.options.max_restarts, ")"));
    }
}

/// Prints the remaining output. Waits for a slow reader until a signal arrives, but at most for a second if a
/// signal has ended the job.
void finish(run::Console& console, const run::Signals& signals, Ending ending) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    console.drain([&] {
        while (const std::optional<int> signal = signals.next()) {
            if (run::asks_to_end(*signal)) return false;
        }
        return !ending.by_signal || std::chrono::steady_clock::now() < limit;
    });
}

int run_command(const run::Options& options) {
    const run::FoundProgram program = run::find_program(options.command.front());
    if (program.exit_status != 0) {
        std::fprintf(stderr, "dptk-run: %s\n", program.error.c_str());
        return program.exit_status;
    }
    run::Job job = run::make_job(options, program.path);
    if (options.node_rank < 0 && !options.elastic) job.options.node_rank = run::join_nodes(job);
    const run::Signals signals;
    run::Console console;
    for (const std::string& remark : job.remarks) console.say(remark);
    if (!job.log_dir.empty()) console.say(text("the output of the ranks is kept in ", job.log_dir));
    Ending ending;
    try {
        ending = run_job(job, signals, console);
    } catch (const std::exception& error) {
        console.say(error.what());
    }
    finish(console, signals, ending);
    return ending.exit_status;
}

}  // namespace

int main(int argc, char** argv) {
    open_standard_descriptors();
    try {
        const run::ParsedOptions parsed = run::parse_options(argc, argv);
        if (parsed.options) return run_command(*parsed.options);
        std::fputs(parsed.text.c_str(), parsed.exit_status == 0 ? stdout : stderr);
        return parsed.exit_status;
    } catch (const dptk::ArgumentError& error) {
        std::fprintf(stderr, "dptk-run: %s\n", error.what());
        return 2;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "dptk-run: %s\n", error.what());
        return 1;
    }
}
