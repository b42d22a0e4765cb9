#include "../../tools/dptk-info/remarks.hpp"

#include <doctest/doctest.h>

#include "../../tools/dptk-info/hosts.hpp"

using namespace info;

namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

Gpu gpu_number(int number) {
    return {.name = "H200",
            .memory = 141 * 1024 * mib,
            .bus_id = "0000:0" + std::to_string(number) + ":00.0",
            .uuid = "GPU-" + std::to_string(number)};
}

/// A job without problems: `per_host` ranks on each host, with one core and one thread each.
JobFacts working_job(int hosts, int per_host) {
    JobFacts job;
    std::vector<int> cores;
    for (int core = 0; core < per_host; ++core) cores.push_back(core);
    for (int rank = 0; rank < hosts * per_host; ++rank) {
        RankFacts facts;
        facts.rank = rank;
        facts.local_rank = rank % per_host;
        facts.host.name = "n" + std::to_string(rank / per_host + 1);
        facts.host.cores = cores;
        facts.host.shm_size = facts.host.shm_free = 1024 * mib;
        facts.libraries.dptk = "0.1.0";
        facts.libraries.mpi = "Open MPI v4.1.4";
        facts.libraries.mpi_thread_level = "multiple";
        facts.omp_num_threads = "1";
        job.ranks.push_back(facts);
    }
    return job;
}

/// Checks that there is exactly one remark, and returns it; empty if there is another number.
std::string only_remark(const JobFacts& job) {
    const std::vector<std::string> remarks = find_remarks(job);
    CHECK(remarks.size() == 1);
    for (const std::string& remark : remarks) CAPTURE(remark);
    return remarks.size() == 1 ? remarks.front() : "";
}

void check_mentions(const std::string& remark, const std::vector<std::string>& pieces) {
    CAPTURE(remark);
    for (const std::string& piece : pieces) {
        CAPTURE(piece);
        CHECK(remark.find(piece) != std::string::npos);
    }
}

}  // namespace

TEST_CASE("a job without problems has no remarks") {
    CHECK(find_remarks(working_job(1, 1)).empty());
    CHECK(find_remarks(working_job(2, 4)).empty());
}

TEST_CASE("a job that could not be joined is reported with the reason") {
    JobFacts job = working_job(1, 1);
    job.launch_problem = "no transport serves torchrun";
    check_mentions(only_remark(job), {"has not joined", "no transport serves torchrun"});
}

TEST_CASE("ranks that use the same GPU are named") {
    JobFacts job = working_job(2, 2);
    for (RankFacts& rank : job.ranks) {
        rank.gpu.gpus = {gpu_number(rank.host.name == "n1" ? 1 : 2 + rank.local_rank)};
        rank.device = 0;
    }
    check_mentions(only_remark(job), {"On n1, ranks 0-1 use the same GPU (H200, 0000:01:00.0)", "(1 seen)",
                                      "CUDA_VISIBLE_DEVICES"});
}

TEST_CASE("GPUs without a UUID are distinguished by host and bus id") {
    JobFacts job = working_job(2, 2);
    for (RankFacts& rank : job.ranks) {
        rank.gpu.gpus = {gpu_number(0), gpu_number(1)};
        for (Gpu& gpu : rank.gpu.gpus) gpu.uuid.clear();
        rank.device = rank.local_rank;
    }
    CHECK(find_remarks(job).empty());
    job.ranks[3].device = 0;
    check_mentions(only_remark(job), {"On n2, ranks 2-3 use the same GPU", "(2 seen)"});
}

TEST_CASE("a driver without usable GPUs is reported once per host") {
    JobFacts job = working_job(2, 2);
    for (RankFacts& rank : job.ranks) {
        if (rank.host.name == "n2") rank.gpu.problem = "cuInit: CUDA_ERROR_NO_DEVICE";
    }
    check_mentions(only_remark(job), {"On n2", "ranks 2-3 can use no GPU (cuInit: CUDA_ERROR_NO_DEVICE)"});
}

TEST_CASE("a driver older than the CUDA runtime is reported") {
    JobFacts job = working_job(1, 1);
    job.ranks[0].libraries.cuda_runtime = "12.4";
    job.ranks[0].libraries.cuda_driver = "12.2";
    CHECK(find_remarks(job).empty());  // releases of the same major version are compatible
    job.ranks[0].libraries.cuda_driver = "11.8";
    check_mentions(only_remark(job), {"supports CUDA 11.8", "runtime is 12.4"});
}

TEST_CASE("a host with fewer cores than ranks is reported, whatever the ranks' affinities") {
    JobFacts job = working_job(2, 4);
    for (RankFacts& rank : job.ranks) {
        if (rank.host.name == "n2") rank.host.cores = {rank.local_rank % 2};
    }
    check_mentions(only_remark(job), {"On n2, 4 ranks (ranks 4-7) share 2 core(s)", "at most 2"});
}

TEST_CASE("hosts of the same name are different if their boot ids differ") {
    JobFacts job = working_job(2, 2);
    for (RankFacts& rank : job.ranks) {
        rank.host.boot_id = rank.host.name;
        rank.host.name = "localhost";
    }
    CHECK(find_remarks(job).empty());
    CHECK(hosts_of(job).size() == 2);
    for (RankFacts& rank : job.ranks) rank.host.boot_id = "the same";
    CHECK(hosts_of(job).size() == 1);
    CHECK(!find_remarks(job).empty());
}

TEST_CASE("the limit of the control group counts as cores") {
    JobFacts job = working_job(1, 4);
    for (RankFacts& rank : job.ranks) rank.host.cpu_limit = 1.5;
    check_mentions(only_remark(job), {"4 ranks (ranks 0-3) share 1.5 core(s)", "at most 1"});
    // If each rank has its own control group, the limit applies to each rank separately.
    for (RankFacts& rank : job.ranks) rank.host.cgroup = "/" + std::to_string(rank.rank);
    CHECK(find_remarks(job).empty());
}

TEST_CASE("more threads than cores are reported, except on a host with one rank") {
    JobFacts job = working_job(1, 4);
    for (RankFacts& rank : job.ranks) rank.omp_num_threads = "2";
    check_mentions(only_remark(job), {"8 threads in 4 ranks on 4 cores:", "OMP_NUM_THREADS=1"});
    for (RankFacts& rank : job.ranks) rank.omp_num_threads = "";
    check_mentions(only_remark(job), {"16 threads", "not set", "OMP_NUM_THREADS=1"});
    for (RankFacts& rank : job.ranks) rank.host.cores = {rank.rank};
    CHECK(find_remarks(job).empty());  // OpenMP starts no more threads than the rank has cores
    JobFacts alone = working_job(1, 1);
    alone.ranks[0].host.cores = {0, 1, 2, 3};
    alone.ranks[0].omp_num_threads = "";
    CHECK(find_remarks(alone).empty());
}

TEST_CASE("a /dev/shm smaller than 64 MiB per rank is reported") {
    JobFacts job = working_job(1, 2);
    for (RankFacts& rank : job.ranks) rank.host.shm_size = 128 * mib;
    CHECK(find_remarks(job).empty());
    for (RankFacts& rank : job.ranks) rank.host.shm_size = 64 * mib;
    check_mentions(only_remark(job), {"/dev/shm has 64 MiB for 2 rank(s)", "128 MiB", "--shm-size"});
}

TEST_CASE("an MPI thread level below MPI_THREAD_MULTIPLE is reported with the ranks that have it") {
    JobFacts job = working_job(1, 3);
    job.ranks[1].libraries.mpi_thread_level = "serialized";
    job.ranks[2].libraries.mpi_thread_level = "serialized";
    check_mentions(only_remark(job), {"\"serialized\" on ranks 1-2", "MPI_THREAD_MULTIPLE"});
    for (RankFacts& rank : job.ranks) rank.libraries.mpi_thread_level.reset();
    CHECK(find_remarks(job).empty());  // MPI has not been initialized
}

TEST_CASE("different versions are reported with the ranks that have them") {
    JobFacts job = working_job(2, 2);
    job.ranks[2].libraries.nccl = job.ranks[3].libraries.nccl = "2.20.5";
    check_mentions(only_remark(job), {"versions of NCCL", "2.20.5 on ranks 2-3", "none on ranks 0-1"});
    job = working_job(2, 1);
    job.ranks[1].libraries.dptk = "0.2.0";
    check_mentions(only_remark(job), {"versions of dptk", "0.1.0 on rank 0", "0.2.0 on rank 1"});
}

TEST_CASE("a rank is reported as slow above 1.3 times the median, and not below") {
    JobFacts job = working_job(2, 2);
    job.compute = ComputeResult{.work = "x", .slowest = {.rank = 3, .ratio = 1.29}};
    job.all_reduce = {{.bytes = 4, .slowest = {.rank = 1, .ratio = 9}},
                      {.bytes = 64 * mib, .slowest = {.rank = 2, .ratio = 1.29}}};
    CHECK(find_remarks(job).empty());
    job.compute->slowest.ratio = 1.5;
    check_mentions(only_remark(job), {"Rank 3 on n2 computes 1.50 times"});
    job.compute.reset();
    job.all_reduce.back().slowest.ratio = 1.31;
    check_mentions(only_remark(job), {"Rank 2 on n2 needs 1.31 times", "all-reduce 64 MiB"});
}

TEST_CASE("the ranks of a host divide its cores, within the affinity of each rank") {
    JobFacts job = working_job(1, 2);
    for (RankFacts& rank : job.ranks) rank.host.cores = {0, 1, 2, 3, 4};
    CHECK(share_of_cores(job, 1) == 2);
    job.ranks[1].host.cores = {0};
    CHECK(share_of_cores(job, 1) == 1);
    CHECK(share_of_cores(job, 0) == 2);
    for (RankFacts& rank : job.ranks) rank.host.cpu_limit = 0.5;
    CHECK(share_of_cores(job, 0) == 1);
}
