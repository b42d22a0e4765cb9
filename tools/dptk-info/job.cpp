#include "job.hpp"

#include <dptk/comm/tcp.hpp>
#include <dptk/ddp.hpp>  // includes the transports that this program is built with

#include <cstdlib>
#include <utility>

#include "facts_json.hpp"
#include "gpu_facts.hpp"
#include "host_facts.hpp"
#include "library_facts.hpp"

namespace info {

namespace {

[[nodiscard]] Job single_process_job(std::string launcher, std::string problem, bool prints_report) {
    return {dptk::SelfCommunicator(dptk::SelfTransport{}), std::move(launcher), std::move(problem),
            prints_report};
}

[[nodiscard]] RankFacts find_rank_facts(const dptk::ProcessGroup& group) {
    RankFacts facts;
    facts.rank = group.rank();
    facts.local_rank = group.local_rank();
    facts.host = find_host_facts();
    facts.libraries = find_library_facts();
    facts.gpu = find_gpu_facts();
    const int gpus = static_cast<int>(facts.gpu.gpus.size());
    if (gpus > 0) facts.device = facts.local_rank % gpus;
    const char* threads = std::getenv("OMP_NUM_THREADS");
    if (threads != nullptr) facts.omp_num_threads = threads;
    return facts;
}

}  // namespace

Job join_job() {
    dptk::LaunchEnvironment launch;
    try {
        launch = dptk::read_launch_environment();
        dptk::ProcessGroup group = dptk::init_process_group();
        const bool prints_report = group.rank() == 0;
        return {std::move(group), launch.source, "", prints_report};
    } catch (const dptk::ArgumentError& error) {
        return single_process_job(launch.source, error.what(), launch.rank == 0);
    }
}

JobFacts gather_job_facts(Job& job) {
    const std::string own =
        dptk::on_all_or_none(job.group, [&] { return text_from(find_rank_facts(job.group)); });
    JobFacts facts;
    facts.launcher = job.launcher;
    facts.backend = job.group.backend();
    facts.launch_problem = job.problem;
    for (const std::string& text : dptk::detail::all_gather_text(job.group, own)) {
        facts.ranks.push_back(rank_facts_from(text));
    }
    return facts;
}

}  // namespace info
