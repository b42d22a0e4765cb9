#include "rank.hpp"

#include <dptk/control/process/child_process.hpp>
#include <dptk/core/detail/errno_text.hpp>
#include <dptk/core/detail/text.hpp>
#include <dptk/core/error.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

namespace run {

namespace {

using dptk::detail::errno_text;
using dptk::detail::text;

RankOutputOptions output_options(const Job& job, const Rendezvous& rendezvous, int rank) {
    RankOutputOptions options;
    options.rank = rank;
    options.single_rank = job.world_size() == 1;
    if (job.log_dir.empty()) return options;
    options.log_dir = text(job.log_dir, "/attempt_", rendezvous.place.restart_count, "/", rank);
    std::error_code error;
    std::filesystem::create_directories(options.log_dir, error);
    if (error)
        throw dptk::BackendError(
            text("cannot create the directory ", options.log_dir, ": ", errno_text(error.value())));

    for (const Streams one : {Streams::out, Streams::err}) {
        const bool tee = includes(job.options.tee, one);
        const bool redirect = includes(job.options.redirects, one) && !tee;
        const Streams other = one == Streams::out ? Streams::err : Streams::out;
        if (tee || redirect) options.files = options.files == Streams::none ? one : Streams::all;
        if (redirect) options.console = options.console == Streams::all ? other : Streams::none;
    }
    return options;
}

}  // namespace

Rank::Rank(const Job& job, const Rendezvous& rendezvous, int local_rank, const Signals& signals,
           Console& console, std::array<LastWriter, 2>& last_writers, ElasticMembers* members)
    : place_(job.place(local_rank)),
      report_path_(text(rendezvous.reports_dir, "/rank-", place_.rank)),
      streams_{{{output_options(job, rendezvous, place_.rank), Stream::out, console, last_writers[0]},
                {output_options(job, rendezvous, place_.rank), Stream::err, console, last_writers[1]}}},
      member_(members == nullptr ? 0 : members->add()),
      process_(start(job, rendezvous, signals, members)) {}

pid_t Rank::start(const Job& job, const Rendezvous& rendezvous, const Signals& signals,
                  ElasticMembers* members) {
    std::remove(report_path_.c_str());  // the report of an earlier attempt
    Environment environment = job.environment;
    environment.set(dptk::detail::rank_environment(place_, rendezvous.place, report_path_));
    if (members != nullptr) environment.set(members->environment(member_));
    const std::vector<char*> variables = environment.pointers();
    std::vector<std::string> command = job.options.command;
    if (job.options.pass_local_rank)
        command.insert(command.begin() + 1, text("--local_rank=", place_.local_rank));
    std::vector<char*> arguments;
    for (std::string& word : command) arguments.push_back(word.data());
    arguments.push_back(nullptr);

    const pid_t process = dptk::detail::fork_rank([&]() noexcept {
        dup2(streams_[0].write_end(), STDOUT_FILENO);
        dup2(streams_[1].write_end(), STDERR_FILENO);
        signals.undo();
        execvpe(job.program.c_str(), arguments.data(), variables.data());
        const int reason = errno;
        dprintf(STDERR_FILENO, "dptk-run: cannot run %s: %s\n", job.program.c_str(), std::strerror(reason));
        return reason == ENOENT ? 127 : 126;
    });
    for (RankStream& stream : streams_) stream.close_write_end();
    return process;
}

}  // namespace run
