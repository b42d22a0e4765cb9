// tensorboard_run FOLDER BEGIN END [resume]: writes what a run from step BEGIN to before END writes, into
// FOLDER, and prints the path of the file. With `resume`, the file says that the run continues at BEGIN.
#include <dptk/train/tensorboard_file.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <string>

namespace {

dptk::Image gradient(std::size_t width, std::size_t height, std::size_t channels) {
    dptk::Image image{width, height, channels, {}};
    for (std::size_t i = 0; i < width * height * channels; ++i)
        image.pixels.push_back(static_cast<std::uint8_t>(i * 7 % 251));
    return image;
}

void write(dptk::TensorBoardFile& file, std::int64_t begin, std::int64_t end) {
    file.text("options", "learning rate **0.1**, \u03b2 0.9", begin);
    for (std::int64_t step = begin; step < end; ++step) {
        file.scalar("train/loss", 1.0 / static_cast<double>(step + 1), step);
        if (step % 5 == 0) file.scalar("test/Genauigkeit \u03b1 \U0001f600", 0.5, step);
        if (step == 3) file.scalar("nan", std::numeric_limits<double>::quiet_NaN(), step);
        if (step == 3) file.scalar("inf", -std::numeric_limits<double>::infinity(), step);
        if (step % 10 == 0) file.image("gray", gradient(5, 4, 1), step);
        if (step % 10 == 0) file.image("color", gradient(301, 200, 3), step);  // several blocks of zlib
    }
    file.flush();
}

}  // namespace

int main(int argc, char** argv) {
    try {
        dptk::TensorBoardFile file(argv[1]);
        const std::int64_t begin = std::stoll(argv[2]), end = std::stoll(argv[3]);
        if (argc > 4) file.resume_at(begin);
        write(file, begin, end);
        std::puts(file.path().c_str());
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
