#pragma once

#include "dptk/control/launch/detail/slurm_hostlist.hpp"

#include <cstddef>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::string first_slurm_host(std::string_view list) {
    std::string out;
    std::size_t i = 0;
    while (i < list.size() && list[i] != ',') {
        if (list[i] != '[') {
            out += list[i++];
            continue;
        }
        const std::size_t close = list.find(']', i);
        if (close == std::string_view::npos) return {};
        const std::string_view ranges = list.substr(i + 1, close - i - 1);
        out += ranges.substr(0, ranges.find_first_of("-,"));  // leading zeros are part of the name
        i = close + 1;
    }
    return out;
}

DPTK_INLINE std::uint16_t slurm_port(std::string_view job_id) {
    std::uint16_t port = 0;
    for (const char digit : job_id.substr(job_id.size() < 4 ? 0 : job_id.size() - 4)) {
        if (digit < '0' || digit > '9') {
            throw ArgumentError(text("invalid SLURM_JOB_ID='", job_id, "': expected a number"));
        }
        port = static_cast<std::uint16_t>(port * 10 + (digit - '0'));
    }
    return static_cast<std::uint16_t>(15000 + port);
}

}  // namespace DPTK_NAMESPACE::detail
