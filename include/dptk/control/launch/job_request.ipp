#pragma once

#include "dptk/control/launch/job_request.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "dptk/control/net/socket.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/control/store/detail/store_file.hpp"
#include "dptk/control/store/detail/store_protocol.hpp"
#include "dptk/core/detail/errno_text.hpp"
#include "dptk/core/detail/fnv1a.hpp"
#include "dptk/core/detail/instruction_set.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::string environment_text(const char* variable) {
    const char* value = std::getenv(variable);
    return value == nullptr ? "" : value;
}

DPTK_INLINE std::string first_of(std::string option, const char* variable) {
    return option.empty() ? environment_text(variable) : std::move(option);
}

DPTK_INLINE std::string environment_token() {
    std::string token = environment_text("DPTK_TOKEN");
    const std::string path = environment_text("DPTK_TOKEN_FILE");
    if (!token.empty() || path.empty()) return token;
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file.is_open())
        throw ArgumentError(text("cannot read DPTK_TOKEN_FILE='", path, "': ", errno_text(errno)));
    check_private_file(text("DPTK_TOKEN_FILE='", path, "'"), file.number());
    char bytes[4096];
    const ssize_t count = ::read(file.number(), bytes, sizeof bytes);
    token.assign(bytes, static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    token = token.substr(0, token.find_first_of("\r\n"));
    if (token.empty())
        throw ArgumentError(
            text("DPTK_TOKEN_FILE='", path, "': expected a token in its first line, got none"));
    return token;
}

DPTK_INLINE std::string elastic_token(const std::string& token, const std::string& run_id) {
    const std::string both = text(token, '/', run_id);
    return both.size() <= max_store_token_bytes ? both : text(fnv1a(both));
}

DPTK_INLINE std::string socket_interface() {
    return first_of(environment_text("DPTK_SOCKET_IFNAME"), "GLOO_SOCKET_IFNAME");
}

DPTK_INLINE std::optional<std::chrono::milliseconds> environment_seconds(const char* variable) {
    return parse_seconds(variable, environment_text(variable));
}

DPTK_INLINE std::optional<std::chrono::milliseconds> parse_seconds(const char* variable,
                                                                   const std::string& value) {
    if (value.empty()) return std::nullopt;
    double seconds = 0;
    const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), seconds);
    if (status != std::errc{} || end != value.data() + value.size() || !(seconds >= 0.001) ||
        !(seconds <= 1e9)) {
        throw ArgumentError(
            text("invalid ", variable, "='", value, "': expected a number of seconds from 0.001 to 1e9"));
    }
    return std::chrono::milliseconds(static_cast<std::int64_t>(std::lround(seconds * 1000)));
}

DPTK_INLINE std::chrono::milliseconds positive(const char* what, std::chrono::milliseconds duration) {
    if (duration.count() > 0) return std::min(duration, longest_wait);
    throw ArgumentError(
        text("init_process_group: expected a positive ", what, ", got ", duration.count(), " ms"));
}

/// Returns the rank and world size from the options or, if they are not set, from the launcher's variables.
[[nodiscard]] DPTK_INLINE LaunchEnvironment launch_with(const InitOptions& options) {
    if (options.rank.has_value() != options.world_size.has_value()) {
        throw ArgumentError(text("init_process_group: got a ", options.rank ? "rank" : "world size",
                                 " but no ", options.rank ? "world size" : "rank", ": set both or neither"));
    }
    LaunchEnvironment given;
    if (!environment_text("DPTK_ELASTIC").empty()) {  // rank and world size are those of each generation
        given.source = "dptk-run --elastic";
        return given;
    }
    if (!options.rank) return read_launch_environment();
    given.rank = *options.rank;
    given.world_size = *options.world_size;
    given.source =
        text("the options of init_process_group (rank ", given.rank, ", world size ", given.world_size, ")");
    if (given.world_size < 1) throw ArgumentError(text(given.source, ": the world size must be at least 1"));
    if (given.rank < 0 || given.rank >= given.world_size) {
        throw ArgumentError(text(given.source, ": the rank is outside [0, ", given.world_size - 1, "]"));
    }
    return given;
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE JobRequest resolve(const InitOptions& options) {
    if (options.store && !options.init_method.empty()) {
        throw ArgumentError("init_process_group: got a store and an init_method: set only one of them");
    }
    detail::check_instruction_limit();
    JobRequest request{.launch = detail::launch_with(options),
                       .backend = detail::first_of(options.backend, "DPTK_BACKEND"),
                       .method = {},
                       .timeout = default_timeout,
                       .heartbeat_timeout = default_heartbeat_timeout,
                       .store = options.store,
                       .network_interface = options.network_interface,
                       .bind_address = detail::first_of(options.bind_address, "DPTK_BIND_ADDRESS"),
                       .token = options.token.empty() ? detail::environment_token() : options.token,
                       .elastic_address = detail::environment_text("DPTK_ELASTIC")};
    if (!request.elastic_address.empty() && !options.elastic)
        throw ArgumentError(
            "the ranks were started by dptk-run --elastic, but the program does not continue when they "
            "change: "
            "call init_process_group({.elastic = true}), and see docs/elastic.md");
    if (!options.store)
        request.method = parse_init_method(detail::first_of(options.init_method, "DPTK_INIT_METHOD"));
    if (request.network_interface.empty()) request.network_interface = detail::socket_interface();
    const auto timeout = options.timeout ? options.timeout : detail::environment_seconds("DPTK_TIMEOUT");
    if (timeout) request.timeout = detail::positive("timeout", *timeout);
    const auto heartbeat = options.heartbeat_timeout ? options.heartbeat_timeout
                                                     : detail::environment_seconds("DPTK_HEARTBEAT_TIMEOUT");
    if (heartbeat) request.heartbeat_timeout = detail::positive("heartbeat timeout", *heartbeat);
    request.heartbeat_timeout = std::min(request.heartbeat_timeout, request.timeout);
    return request;
}

}  // namespace DPTK_NAMESPACE
