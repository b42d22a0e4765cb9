// Parsers for /etc/os-release, /proc, control groups and version numbers. They are pure functions of a file's
// contents.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace info {

/// PRETTY_NAME of /etc/os-release, without its quotes; "Linux", the default of the format, if it is missing.
[[nodiscard]] std::string parse_os_release(std::string_view text);

/// One entry of /proc/meminfo, such as "MemTotal", in bytes.
[[nodiscard]] std::optional<std::uint64_t> parse_meminfo(std::string_view text, std::string_view entry);

/// The processor's name in /proc/cpuinfo; empty if it has none, as on most ARM machines.
[[nodiscard]] std::string parse_cpu_model(std::string_view text);

/// Controllers and paths of the lines of /proc/self/cgroup. The controller of cgroup version 2 is "".
[[nodiscard]] std::vector<std::pair<std::string, std::string>> parse_cgroup_paths(std::string_view text);

/// The number of cores that the limit "QUOTA PERIOD" allows; empty if it is unlimited. This is the format of
/// cpu.max of cgroup version 2; version 1 has QUOTA and PERIOD in two files.
[[nodiscard]] std::optional<double> parse_cpu_max(std::string_view text);

/// The number of bytes in memory.max or memory.limit_in_bytes; empty for "max".
[[nodiscard]] std::optional<std::uint64_t> parse_memory_max(std::string_view text);

/// The number of threads in OMP_NUM_THREADS ("4", or "4,2" for nested parallelism); empty if it is not a
/// positive number.
[[nodiscard]] std::optional<int> parse_omp_num_threads(std::string_view text);

/// CUDA version: 13.0 for 13000.
[[nodiscard]] std::string cuda_version_text(int version);

/// cuDNN version: 9.1.0 for 90100, and 8.9.2 for 8902, because the factor of the major version is 10000 since
/// version 9.
[[nodiscard]] std::string cudnn_version_text(std::size_t version);

/// NCCL version: 2.28.9 for 22809, and 2.8.4 for 2804, because the factor of the major version is 10000 since
/// version 2.9.
[[nodiscard]] std::string nccl_version_text(int version);

}  // namespace info
