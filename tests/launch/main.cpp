#include "command.hpp"

#include <dptk/comm/tcp.hpp>

#include <cstdio>
#include <map>

namespace {

std::map<std::string, int (*)(const launch::Words&)>& commands() {
    static std::map<std::string, int (*)(const launch::Words&)> all;
    return all;
}

}  // namespace

launch::Command::Command(const std::string& name, int (*run)(const Words&)) {
    commands()[name] = run;
}

int main(int argc, char** argv) {
    const launch::Words words(argv, argv + argc);
    const auto command = argc > 1 ? commands().find(words[1]) : commands().end();
    if (command == commands().end()) {
        std::fprintf(stderr, "usage: %s COMMAND [ARGUMENT...]\n", argv[0]);
        for (const auto& [name, run] : commands()) std::fprintf(stderr, "  %s\n", name.c_str());
        return 2;
    }
    return command->second(launch::Words(words.begin() + 2, words.end()));
}
