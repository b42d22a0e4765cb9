#include <doctest/doctest.h>
#include <dptk/control/launch/job_request.hpp>
#include <dptk/control/launch/launcher.hpp>
#include <dptk/control/process/temporary_directory.hpp>
#include <dptk/core/error.hpp>

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

namespace {

/// Replaces the launcher's variables in the environment for one test.
class Environment {
  public:
    explicit Environment(const std::map<std::string, std::string>& variables) {
        clear();
        for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    }

    ~Environment() { clear(); }
    Environment(const Environment&) = delete;
    Environment& operator=(const Environment&) = delete;

  private:
    static void clear() {
        for (const auto& launcher : dptk::detail::launcher_variables) {
            unsetenv(launcher.rank);
            unsetenv(launcher.size);
        }
    }
};

std::string error_of(const std::map<std::string, std::string>& variables) {
    const Environment environment(variables);
    try {
        static_cast<void>(dptk::read_launch_environment());
    } catch (const dptk::ArgumentError& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("without a launcher there is one rank") {
    const Environment environment({});
    const dptk::LaunchEnvironment launch = dptk::read_launch_environment();
    CHECK(launch.launcher == dptk::Launcher::none);
    CHECK(launch.world_size == 1);
}

TEST_CASE("each launcher is recognized by its variables") {
    for (const auto& launcher : dptk::detail::launcher_variables) {
        const Environment environment({{launcher.rank, "3"}, {launcher.size, "8"}});
        const dptk::LaunchEnvironment launch = dptk::read_launch_environment();
        CHECK(launch.launcher == launcher.launcher);
        CHECK(launch.rank == 3);
        CHECK(launch.world_size == 8);
        CHECK(launch.source.find(launcher.size) != std::string::npos);
    }
}

TEST_CASE("srun's variables are ignored under mpirun") {
    const Environment environment({{"SLURM_PROCID", "0"},
                                   {"SLURM_STEP_NUM_TASKS", "16"},
                                   {"OMPI_COMM_WORLD_RANK", "1"},
                                   {"OMPI_COMM_WORLD_SIZE", "2"}});
    CHECK(dptk::read_launch_environment().world_size == 2);
}

TEST_CASE("srun is the launcher if its variables agree with those of PMI") {
    const Environment environment(
        {{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
    CHECK(dptk::read_launch_environment().launcher == dptk::Launcher::slurm);
}

TEST_CASE("srun's variables are ignored under torchrun") {
    setenv("TORCHELASTIC_RUN_ID", "7", 1);
    const Environment environment(
        {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"RANK", "5"}, {"WORLD_SIZE", "16"}});
    CHECK(dptk::read_launch_environment().rank == 5);
    unsetenv("TORCHELASTIC_RUN_ID");
}

TEST_CASE("two launchers that disagree are an error that names both") {
    const std::string error = error_of(
        {{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
    CHECK(error.find("WORLD_SIZE=4") != std::string::npos);
    CHECK(error.find("OMPI_COMM_WORLD_SIZE=2") != std::string::npos);
}

TEST_CASE("an invalid variable is an error that shows it") {
    CHECK(error_of({{"RANK", "zero"}, {"WORLD_SIZE", "2"}}).find("RANK='zero'") != std::string::npos);
    CHECK(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2x"}}).find("WORLD_SIZE='2x'") != std::string::npos);
    CHECK(error_of({{"RANK", "0"}, {"WORLD_SIZE", "0"}}).find("WORLD_SIZE='0'") != std::string::npos);
    CHECK(error_of({{"RANK", "0"}, {"WORLD_SIZE", "1000000000"}}).find("expected at most 1000000 ranks") !=
          std::string::npos);
    CHECK(error_of({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}).find("RANK='-1'") != std::string::npos);
    CHECK(error_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}}).find("expected a rank in [0, 1], got 2") !=
          std::string::npos);
}

TEST_CASE("the token comes from a file that only this user can access") {
    const dptk::detail::TemporaryDirectory directory("dptk-test");
    const std::string path = directory.path() + "/token";
    std::ofstream(path) << "secret\nsecond line\n";
    setenv("DPTK_TOKEN_FILE", path.c_str(), 1);
    const auto error = [] {
        try {
            static_cast<void>(dptk::resolve({}));
        } catch (const dptk::ArgumentError& problem) {
            return std::string(problem.what());
        }
        return std::string();
    };
    chmod(path.c_str(), 0644);
    CHECK(error() ==
          "DPTK_TOKEN_FILE='" + path + "' can be accessed by other users (mode 0644): expected mode 0600");
    chmod(path.c_str(), 0600);
    CHECK(dptk::resolve({}).token == "secret");
    CHECK(dptk::resolve({.token = "own"}).token == "own");
    setenv("DPTK_TOKEN", "shorter", 1);
    CHECK(dptk::resolve({}).token == "shorter");
    unsetenv("DPTK_TOKEN");
    std::ofstream(path, std::ios::trunc) << "\n";
    CHECK(error() == "DPTK_TOKEN_FILE='" + path + "': expected a token in its first line, got none");
    setenv("DPTK_TOKEN_FILE", "/missing/token", 1);
    CHECK(error() == "cannot read DPTK_TOKEN_FILE='/missing/token': No such file or directory");
    unsetenv("DPTK_TOKEN_FILE");
}
