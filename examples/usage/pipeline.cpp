// A pipeline of three ranks. No rank knows how long the next message is: an empty vector receives a message
// of any length, and probe() tells the tag and the length of a message before it is received.
//   mpirun -np 3 pipeline
#include <dptk/ddp.hpp>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

constexpr int numbers = 1;  // tags tell kinds of messages apart
constexpr int remark = 2;

// Sends lists of numbers, of different lengths. A list without numbers ends the pipeline.
void produce(dptk::ProcessGroup& group) {
    for (const int length : {5, 1, 12, 0}) {
        std::vector<int> list;
        for (int i = 0; i < length; ++i) list.push_back(i * length % 7);
        group.send(list, 1, numbers);
    }
}

// Passes the numbers on that occur once in their list, and remarks on lists of which nothing is left out.
void filter(dptk::ProcessGroup& group) {
    while (true) {
        std::vector<int> list, unique;
        group.recv(list, 0, numbers);
        std::ranges::copy_if(list, std::back_inserter(unique),
                             [&](int number) { return std::ranges::count(list, number) == 1; });
        group.send(unique, 2, numbers);
        if (list.empty()) return;
        if (unique == list) group.send(std::string("all different"), 2, remark);
    }
}

void print(dptk::ProcessGroup& group) {
    while (true) {
        const dptk::MessageInfo next = group.probe(1);
        if (next.tag == remark) {
            std::string text(next.count<char>(), ' ');
            group.recv(text, next.source, remark);
            std::printf("%s\n", text.c_str());
            continue;
        }
        std::vector<int> list(next.count<int>());
        group.recv(list, next.source, numbers);
        if (list.empty()) return;
        std::printf("%zu numbers, the last one is %d\n", list.size(), list.back());
    }
}

int main() {
    dptk::ProcessGroup group = dptk::init_process_group();
    if (group.rank() == 0) produce(group);
    if (group.rank() == 1) filter(group);
    if (group.rank() == 2) print(group);
}
