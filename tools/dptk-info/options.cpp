#include "options.hpp"

#include <dptk/core/version.hpp>

#include <CLI/CLI.hpp>

#include <sstream>

namespace info {

ParsedOptions parse_options(int argc, char** argv) {
    bool quick = false;
    bool no_tests = false;
    Options options;
    CLI::App app(
        "Reports the hosts, GPUs, libraries and ranks of a job as dptk sees them, and problems with "
        "them.\n"
        "Started alone, it describes this machine. Started by a launcher (mpirun -np 4 dptk-info), it also\n"
        "shows which rank runs where, and measures the speed of the ranks and of the network between them.",
        "dptk-info");
    app.set_help_flag("-h,--help", "print this text and exit");
    app.add_flag("--json", options.json, "print one JSON object; progress goes to stderr");
    app.add_flag("--quick", quick, "run the tests with few repetitions");
    app.add_flag("--no-tests", no_tests, "do not run the tests of speed");
    app.add_option("--job", options.job,
                   "report what a running job does, instead: the process number of one\n"
                   "of its ranks on this host, or HOST:PORT of its store")
        ->type_name("JOB");
    app.set_version_flag("--version", "dptk-info " DPTK_VERSION, "print the version and exit");
    try {
        app.parse(argc, argv);
        if (quick && no_tests) throw CLI::ExcludesError("--quick", "--no-tests");
        options.tests = no_tests ? Effort::none : quick ? Effort::quick : Effort::full;
        return {options, "", 0};
    } catch (const CLI::ParseError& error) {
        std::ostringstream text;
        const bool wrong = app.exit(error, text, text) != 0;
        return {std::nullopt, (wrong ? "dptk-info: " : "") + text.str(), wrong ? 2 : 0};
    }
}

}  // namespace info
