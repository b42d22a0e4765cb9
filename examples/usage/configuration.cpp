// Objects between ranks: rank 0 broadcasts a configuration that only it has read, and gathers the results.
//   mpirun -np 2 configuration
#include <dptk/comm/objects.hpp>
#include <dptk/ddp.hpp>

#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

using Setting = std::variant<bool, double, std::string, std::vector<int>>;
using Configuration = std::map<std::string, Setting>;
using Result = std::tuple<int, double, std::optional<std::string>>;  // rank, score, and a remark

int main() {
    dptk::ProcessGroup group = dptk::init_process_group();
    Configuration configuration;
    if (group.rank() == 0)
        configuration = {{"shuffle", true},
                         {"lr", 0.25},
                         {"model", std::string("mlp")},
                         {"hidden", std::vector<int>{64, 32}}};
    group.broadcast_object(configuration);

    const double lr = std::get<double>(configuration.at("lr"));
    const auto& hidden = std::get<std::vector<int>>(configuration.at("hidden"));
    Result own{group.rank(), lr * hidden[0] + group.rank(), std::nullopt};
    if (group.rank() == 1) std::get<2>(own) = "trained a " + std::get<std::string>(configuration.at("model"));

    for (const auto& [rank, score, remark] : group.gather_object(own))  // empty on the other ranks
        std::printf("rank %d: score %g%s\n", rank, score, remark ? (", " + *remark).c_str() : "");
}
