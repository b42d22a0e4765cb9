#include "facts_json.hpp"

#include <dptk/core/version.hpp>

#include <nlohmann/json.hpp>

/// An empty optional is null in JSON.
template <class T>
struct nlohmann::adl_serializer<std::optional<T>> {
    static void to_json(json& out, const std::optional<T>& value) {
        out = nullptr;
        if (value) out = *value;
    }

    static void from_json(const json& in, std::optional<T>& value) {
        value = in.is_null() ? std::nullopt : std::optional<T>(in.get<T>());
    }
};

namespace info {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(HostFacts, name, boot_id, system, kernel, cpu, cores,
                                                cores_online, cpu_limit, cgroup, memory_total,
                                                memory_available, memory_limit, shm_size, shm_free)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LibraryFacts, dptk, transports, mpi, mpi_thread_level,
                                                mpi_cuda_aware, gloo, onednn, cuda_driver, cuda_runtime,
                                                cudnn, nccl)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Gpu, name, memory, bus_id, uuid)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(GpuFacts, gpus, problem)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RankFacts, rank, local_rank, host, libraries, gpu, device,
                                                omp_num_threads)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Slowest, rank, ratio)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ComputeResult, work, seconds, threads, slowest)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(MessageResult, peer, latency, bytes_per_second)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(AllReduceResult, bytes, repetitions, seconds,
                                                bytes_per_second, slowest)

namespace {

/// Replaces invalid UTF-8, because names of hosts and devices may contain any bytes.
[[nodiscard]] std::string dump(const nlohmann::ordered_json& value, int indent) {
    return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

std::string text_from(const RankFacts& facts) {
    return dump(nlohmann::json(facts), -1);
}

RankFacts rank_facts_from(std::string_view text) {
    return nlohmann::json::parse(text).get<RankFacts>();
}

std::string text_from(const JobFacts& facts, const std::vector<std::string>& remarks) {
    nlohmann::ordered_json report;
    report["dptk"] = DPTK_VERSION;
    report["launcher"] = facts.launcher;
    report["backend"] = facts.backend;
    report["world_size"] = facts.ranks.size();
    report["ranks"] = nlohmann::json(facts.ranks);
    report["compute"] = nlohmann::json(facts.compute);
    report["messages"] = nlohmann::json(facts.messages);
    report["all_reduce"] = nlohmann::json(facts.all_reduce);
    report["remarks"] = remarks;
    return dump(report, 2);
}

}  // namespace info
