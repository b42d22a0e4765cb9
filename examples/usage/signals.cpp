// Signals that ask a program to end, as batch systems send them: the ranks agree after each step, end at the
// same one, and save their work. The next start continues.
//   mpirun -np 2 signals FILE
#include <dptk/ddp.hpp>
#include <dptk/train/stop_signals.hpp>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>

int main(int, char** arguments) {
    const dptk::StopSignals signals;  // once received_by_any() is called, signals are only noted
    dptk::ProcessGroup group = dptk::init_process_group();
    int step = 0;
    if (group.rank() == 0) std::ifstream(arguments[1]) >> step;  // stays 0 without a file
    step = group.all_reduce_value(step, dptk::ReduceOp::max);
    if (group.rank() == 0) {
        std::printf("training from step %d\n", step);
        std::fflush(stdout);
    }
    int signal = 0;
    for (; step < 1000 && signal == 0; ++step) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));  // in the place of the step's work
        signal = dptk::StopSignals::received_by_any(group);
    }
    if (signal == 0 || group.rank() != 0) return 0;
    std::ofstream(arguments[1]) << step << '\n';
    std::printf("%s: step %d is saved in %s\n", dptk::signal_name(signal).c_str(), step, arguments[1]);
}
