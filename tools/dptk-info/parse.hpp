// Reads the texts in which Linux tells about itself. Pure functions, which take the contents of a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace info {

/// PRETTY_NAME of /etc/os-release, without its quotes; "Linux", the format's default, where there is none.
[[nodiscard]] std::string parse_os_release(std::string_view text);

/// The bytes of one entry of /proc/meminfo, such as "MemTotal".
[[nodiscard]] std::optional<std::uint64_t> parse_meminfo(std::string_view text, std::string_view entry);

/// The processor's name in /proc/cpuinfo; empty where it gives none, as on most ARM machines.
[[nodiscard]] std::string parse_cpu_model(std::string_view text);

/// Controller and path of each line of /proc/self/cgroup; version 2 has one, whose controller is "".
[[nodiscard]] std::vector<std::pair<std::string, std::string>> parse_cgroup_paths(std::string_view text);

/// The cores that cpu.max (version 2) or "QUOTA PERIOD" (version 1) allow; none where there is no limit.
[[nodiscard]] std::optional<double> parse_cpu_max(std::string_view text);

/// The bytes in memory.max or memory.limit_in_bytes; none for "max".
[[nodiscard]] std::optional<std::uint64_t> parse_memory_max(std::string_view text);

/// The number of threads in OMP_NUM_THREADS ("4", or "4,2" for nested ones); none where it is not a number.
[[nodiscard]] std::optional<int> parse_omp_num_threads(std::string_view text);

/// 13.0 for 13000: the CUDA way.
[[nodiscard]] std::string cuda_version_text(int version);

/// 9.1.0 for 90100, and 8.9.2 for 8902: cuDNN counts in tens of thousands since version 9.
[[nodiscard]] std::string cudnn_version_text(std::size_t version);

/// 2.28.9 for 22809, and 2.8.4 for 2804: NCCL counts in tens of thousands since version 2.9.
[[nodiscard]] std::string nccl_version_text(int version);

}  // namespace info
