// Measures a training step of a model of the field with one thread: forward, loss, backward and SGD. Prints
// the median in milliseconds and the peak memory of the process in MiB. bench/model_step.py runs it beside
// PyTorch.
//   model_step MODEL BATCH SIZE
#include <sys/resource.h>

#include <cstdio>
#include <string>
#include <vector>

#include "measure.hpp"
#include "training.hpp"

int main(int argc, char** argv) {
    if (argc != 4) return 2;
#ifdef DPTK_WITH_ONEDNN
    dptk::nn::cpu::set_num_threads(1);
#endif
    const std::size_t size = std::stoul(argv[3]);
    bench::Training training(dptk::nn::make_model(argv[1], {.input = {3, size, size}, .dropout = 0}),
                             std::stoul(argv[2]));
    std::vector<dptk::ParameterRef> parameters;
    training.net.for_each_parameter([&](const dptk::ParameterRef& ref) { parameters.push_back(ref); });
    std::vector<double> times;
    for (int step = 0; step < 7; ++step) {
        times.push_back(bench::microseconds([&] {
            training.forward_backward();
            training.step(parameters);
        }));
    }
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    std::printf("%.2f %.1f\n", bench::median(times) / 1000, static_cast<double>(usage.ru_maxrss) / 1024);
}
