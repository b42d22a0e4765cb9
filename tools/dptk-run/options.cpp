#include "options.hpp"

#include <dptk/core/detail/parse.hpp>
#include <dptk/core/detail/text.hpp>
#include <dptk/core/version.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <sstream>

namespace run {

namespace {

using dptk::detail::text;

constexpr int default_master_port = 29500;

/// The command line as parsed, before the options are checked for consistency.
struct Given {
    Options options;
    bool standalone = false;
    bool use_env = false;
    bool has_free_port = false;  // --rdzv-endpoint HOST:0
    std::string nnodes = "1";
    std::optional<int> node_rank;
    std::string endpoint;
    std::string rendezvous_backend;
    std::string redirects = "none";
    std::string tee = "none";
    std::vector<std::string> environment;
};

class Formatter : public CLI::Formatter {
  public:
    Formatter() { column_width(36); }

    std::string make_usage(const CLI::App*, std::string) const override {
        return "Usage: dptk-run [options] [--] program [arguments...]\n";
    }
};

void declare_options(CLI::App& app, Given& given) {
    Options& options = given.options;
    const auto streams = CLI::IsMember({"none", "out", "err", "all"}).description("");
    app.add_option("--nproc-per-node", options.nproc_per_node, "ranks on this host (1); auto: GPUs or cores")
        ->type_name("N|auto|gpu|cpu");
    app.add_option("--nnodes", given.nnodes, "number of hosts; each runs dptk-run (1)")
        ->type_name("N|MIN:MAX");
    app.add_option("--node-rank", given.node_rank, "index of this host (the hosts agree on it)")
        ->type_name("N");
    app.add_option("--master-addr", options.master_addr, "host of rank 0")->type_name("HOST");
    app.add_option("--master-port", options.master_port, text("port of rank 0 (", default_master_port, ")"))
        ->type_name("PORT")
        ->check(CLI::Range(1, 65535).description(""));
    app.add_flag("--standalone", given.standalone, "a single host, a free port (no --master-*)");
    app.add_option("--rdzv-endpoint", given.endpoint, "--master-addr and --master-port in one")
        ->type_name("HOST[:PORT]");
    app.add_option("--rdzv-id", options.run_id, "name of the job, same on all hosts")->type_name("NAME");
    app.add_option("--max-restarts", options.max_restarts, "restarts of all ranks after failures (0)")
        ->type_name("N")
        ->check(CLI::Range(0, 1 << 20).description(""));
    app.add_flag("--elastic", options.elastic, "the other ranks continue when one is lost");
    app.add_option("--shutdown-timeout", options.shutdown_timeout,
                   "time to end, before ranks are killed (30)")
        ->type_name("SECONDS");
    app.add_option("--log-dir", options.log_dir, "directory for the ranks' output files")->type_name("DIR");
    app.add_option("--redirects", given.redirects, "write output to files only (none)")
        ->type_name("none|out|err|all")
        ->check(streams);
    app.add_option("--tee", given.tee, "write output to files and console (all)")
        ->type_name("none|out|err|all")
        ->check(streams);
    app.add_option("--env", given.environment, "environment variable for the ranks")
        ->type_name("NAME=VALUE")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    app.add_flag("--pass-local-rank", options.pass_local_rank, "add the argument --local_rank=N");
    // Options of torchrun and torch.distributed.launch for what dptk-run always does. The help does not show
    // them.
    app.add_option("--rdzv-backend", given.rendezvous_backend)->group("");
    app.add_flag("--use-env", given.use_env)->group("");
    app.add_flag("--no-python")->group("");
    app.set_help_flag("-h,--help", "print this text and exit");
    app.set_version_flag("--version", "dptk-run " DPTK_VERSION, "print the version and exit");
}

struct Split {
    std::vector<std::string> options;
    std::vector<std::string> command;
};

/// Separates dptk-run's options from the program and its arguments. The program is the first argument that is
/// neither an option nor the value of an option.
Split split_command_line(const CLI::App& app, int argc, char** argv) {
    Split split;
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; ++i) {
        std::string argument = argv[i];
        if (argument == "--") {
            ++i;
            break;
        }
        const std::size_t equals = std::min(argument.find('='), argument.size());
        if (argument.starts_with("--")) {  // --nproc_per_node, as torchrun writes it
            std::replace(argument.begin(), argument.begin() + static_cast<std::ptrdiff_t>(equals), '_', '-');
        }
        split.options.push_back(argument);
        const CLI::Option* const option = app.get_option_no_throw(argument);
        const bool has_value = option != nullptr && option->get_items_expected_min() > 0;
        if (has_value && i + 1 < argc) split.options.emplace_back(argv[++i]);
    }
    split.command.assign(argv + std::min(i, argc), argv + argc);
    return split;
}

Streams streams_of(const std::string& name) {
    if (name == "out") return Streams::out;
    if (name == "err") return Streams::err;
    return name == "all" ? Streams::all : Streams::none;
}

/// Takes --rdzv-endpoint for --master-addr and --master-port. Returns what is wrong with it, or an empty
/// text.
std::string take_endpoint(Given& given) {
    Options& options = given.options;
    const std::string& backend = given.rendezvous_backend;
    if (!backend.empty() && backend != "c10d" && backend != "static")
        return text("--rdzv-backend ", backend, ": expected c10d or static");
    if (given.endpoint.empty()) return "";
    if (given.standalone || !options.master_addr.empty() || options.master_port != 0)
        return "--rdzv-endpoint contradicts --standalone, --master-addr and --master-port";
    std::string host = given.endpoint;
    const std::size_t bracket = host.starts_with('[') ? host.find(']') : 0;  // as in [fd00::1]:29500
    if (const std::size_t colon = host.find(':', std::min(bracket, host.size()));
        colon != std::string::npos) {
        const std::string port = host.substr(colon + 1);
        host.resize(colon);
        const bool is_port = dptk::detail::parse_number(port, options.master_port);
        const int lowest = options.max_nnodes > 1 ? 1 : 0;  // 0: a free port
        if (!is_port || options.master_port < lowest || options.master_port > 65535)
            return text("--rdzv-endpoint ", given.endpoint, ": expected HOST or HOST:PORT with a port in [",
                        lowest, ", 65535]");
        given.has_free_port = options.master_port == 0;
    }
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    if (host.empty()) return text("--rdzv-endpoint ", given.endpoint, ": expected HOST or HOST:PORT");
    options.master_addr = std::move(host);
    return "";
}

/// Takes --nnodes N, or MIN:MAX for an elastic job. Returns what is wrong with it, or an empty text.
std::string take_nnodes(Given& given) {
    Options& options = given.options;
    const std::size_t colon = std::min(given.nnodes.find(':'), given.nnodes.size());
    const bool is_range = colon < given.nnodes.size();
    const auto is_valid = [](const std::string& text, int& number) {
        return dptk::detail::parse_number(text, number) && number >= 1 && number <= 1 << 20;
    };
    const std::string last = is_range ? given.nnodes.substr(colon + 1) : given.nnodes;
    if (!is_valid(given.nnodes.substr(0, colon), options.nnodes) || !is_valid(last, options.max_nnodes) ||
        options.nnodes > options.max_nnodes)
        return text("--nnodes ", given.nnodes, ": expected a number of hosts, or MIN:MAX with --elastic");
    if (is_range && !options.elastic)
        return text("--nnodes ", given.nnodes, ": a range of hosts needs --elastic");
    return "";
}

/// What is wrong with the options about hosts, ranks and ports; empty if they are valid.
std::string place_error(const Given& given) {
    const Options& options = given.options;
    const std::string nnodes = text("--nnodes ", options.nnodes);
    if (given.standalone && options.max_nnodes > 1) return text("--standalone contradicts ", nnodes);
    if (given.standalone && (!options.master_addr.empty() || options.master_port != 0)) {
        return "--standalone contradicts --master-addr and --master-port: it chooses a free port itself";
    }
    if (options.max_nnodes > 1 && options.master_addr.empty()) {
        return text(nnodes,
                    " needs --rdzv-endpoint or --master-addr, the name or address of the host of rank 0");
    }
    const int node_rank = given.node_rank.value_or(0);
    if (node_rank < 0 || node_rank >= options.max_nnodes) {
        return text("--node-rank ", node_rank, ": expected a number in [0, ", options.max_nnodes - 1, "]");
    }
    return "";
}

/// What is wrong with the --env options; empty if they are valid.
std::string environment_error(const Given& given) {
    for (const std::string& variable : given.environment) {
        const std::size_t equals = variable.find('=');
        if (equals == 0 || equals == std::string::npos) {
            return text("--env ", variable, ": expected NAME=VALUE");
        }
        const std::string given_name = variable.substr(0, equals);
        const auto own = dptk::detail::rank_environment({}, {}, "");
        const bool is_own =
            std::ranges::any_of(own, [&](const auto& one) { return one.first == given_name; });
        if (is_own || given_name == "DPTK_ELASTIC" || given_name == "DPTK_MEMBER")
            return text("--env ", given_name, ": dptk-run sets this variable itself");
    }
    return "";
}

bool is_count(const std::string& value) {
    return !value.empty() && value.size() <= 6 &&
           value.find_first_not_of("0123456789") == std::string::npos && std::stoi(value) > 0;
}

/// What is wrong with the options; empty if they are valid.
std::string options_error(const Given& given) {
    const Options& options = given.options;
    const std::string& nproc = options.nproc_per_node;
    if (!is_count(nproc) && nproc != "auto" && nproc != "gpu" && nproc != "cpu") {
        return text("--nproc-per-node ", nproc, ": expected a number (1 or more), auto, gpu or cpu");
    }
    if (std::string error = place_error(given); !error.empty()) return error;
    if (std::string error = environment_error(given); !error.empty()) return error;
    if (options.run_id.find('/') != std::string::npos || options.run_id.starts_with('.')) {
        return text("--rdzv-id ", options.run_id,
                    ": expected a name without '/' that does not begin with '.'");
    }
    if (options.log_dir.empty() && (given.redirects != "none" || given.tee != "none")) {
        return "--redirects and --tee need --log-dir, the directory for the files";
    }
    if (given.use_env && options.pass_local_rank) return "--use-env contradicts --pass-local-rank";
    if (options.command.empty()) return "no program given";
    return "";
}

/// Fills in the options that depend on other options.
void complete(Given& given, const CLI::App& app) {
    Options& options = given.options;
    options.node_rank = given.node_rank.value_or(options.max_nnodes > 1 ? -1 : 0);
    options.redirects = streams_of(given.redirects);
    options.tee = streams_of(given.tee);
    const bool is_default = app.count("--redirects") == 0 && app.count("--tee") == 0;
    if (!options.log_dir.empty() && is_default) options.tee = Streams::all;
    if (!options.master_addr.empty() && options.master_port == 0 && !given.has_free_port)
        options.master_port = default_master_port;
    for (const std::string& variable : given.environment) {
        const std::size_t equals = variable.find('=');
        options.environment.emplace_back(variable.substr(0, equals), variable.substr(equals + 1));
    }
}

ParsedOptions usage_error(const std::string& message) {
    return {std::nullopt, text("dptk-run: ", message, "\nRun `dptk-run --help` for the options.\n"), 2};
}

}  // namespace

ParsedOptions parse_options(int argc, char** argv) {
    Given given;
    CLI::App app("Starts a program as several ranks on this host. If one fails, ends the others.");
    app.formatter(std::make_shared<Formatter>());
    declare_options(app, given);
    Split split = split_command_line(app, argc, argv);
    given.options.command = std::move(split.command);
    try {
        std::reverse(split.options.begin(), split.options.end());
        app.parse(std::move(split.options));
    } catch (const CLI::Success& success) {  // --help, --version
        std::ostringstream text;
        app.exit(success, text, text);
        return {std::nullopt, text.str(), 0};
    } catch (const CLI::ParseError& error) {
        return usage_error(error.what());
    }
    if (const std::string error = take_nnodes(given); !error.empty()) return usage_error(error);
    if (const std::string error = take_endpoint(given); !error.empty()) return usage_error(error);
    if (const std::string error = options_error(given); !error.empty()) return usage_error(error);
    complete(given, app);
    return {std::move(given.options), "", 0};
}

}  // namespace run
