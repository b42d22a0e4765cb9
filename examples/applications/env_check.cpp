// Checks that machines are ready for training: prints what each rank has, trains a network for a few steps,
// on the images of a folder or on random ones, and names the slowest rank.
//   mpirun -np 2 env_check --data FOLDER --iterations 20
#include <dptk/comm/objects.hpp>
#include <dptk/comm/tcp.hpp>
#include <dptk/data/images/image_folder.hpp>
#include <dptk/train.hpp>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using dptk::detail::text;

struct Options {
    std::string data, model = "resnet50", device = "cpu";
    std::size_t image_size = 224, batch_size = 8, iterations = 20;
    int epochs = 1;
    std::uint64_t seed = 0;
};

void declare(CLI::App& app, Options& options) {
    const auto models = dptk::nn::model_names();
    app.get_formatter()->column_width(30);
    app.option_defaults()->always_capture_default();
    app.set_help_flag("-h,--help", "print this text and exit");
    app.add_option("--data", options.data,
                   "folder with a folder of images per class;\nwithout it: random images")
        ->type_name("DIR");
    app.add_option("--model", options.model, "network, such as resnet18 or convnet")
        ->type_name("NAME")
        ->check(CLI::IsMember(std::vector<std::string>(models.begin(), models.end())).description(""));
    const auto add_number = [&](const char* name, auto& value, const char* help) {
        app.add_option(name, value, help)->type_name("N")->check(CLI::Range(1, 100'000).description(""));
    };
    add_number("--image-size", options.image_size, "width and height in pixels");
    add_number("--batch-size", options.batch_size, "images of a step on each rank");
    add_number("--iterations", options.iterations, "steps of an epoch, at most");
    add_number("--epochs", options.epochs, "passes over the images");
    app.add_option("--seed", options.seed, "of parameters and order of images")->type_name("N");
    app.add_option("--device", options.device, "cpu, or gpu: one for each rank")
        ->type_name("NAME")
        ->check(CLI::IsMember({"cpu", "gpu"}).description(""));
}

// At most `count` images, from all classes of the folder, or without a folder, random ones of 10 classes.
class Images {
  public:
    Images(const dptk::ImageFolder* folder, std::size_t side, std::size_t count)
        : folder_(folder), side_(side), size_(folder != nullptr ? std::min(count, folder->size()) : count) {}

    std::size_t size() const { return size_; }
    std::pair<dptk::Image, int> operator[](std::size_t i) const {
        if (folder_ != nullptr) return (*folder_)[i * folder_->size() / size_];
        dptk::Image image{side_, side_, 3, std::vector<std::uint8_t>(side_ * side_ * 3)};
        std::minstd_rand random(static_cast<unsigned>(i + 1));
        for (std::uint8_t& value : image.pixels) value = static_cast<std::uint8_t>(random() >> 8U);
        return {std::move(image), static_cast<int>(i % 10)};
    }

  private:
    const dptk::ImageFolder* folder_;
    std::size_t side_, size_;
};

// Prints what this program was built with, and what each rank has.
void print_environment(dptk::ProcessGroup& group) {
    std::string libraries = "dptk " DPTK_VERSION;
#ifdef DPTK_WITH_MPI
    libraries += ", " + dptk::MpiEnvironment::library();
#endif
    if (dptk::is_gloo_available()) libraries += ", Gloo";
    if (dptk::is_nccl_available()) libraries += ", NCCL";
#ifdef DPTK_WITH_ONEDNN
    const dnnl::version_t& onednn = *dnnl::version();
    libraries += text(", oneDNN ", onednn.major, ".", onednn.minor, ".", onednn.patch);
#endif
    std::string gpus = ", no CUDA in this program";
#ifdef DPTK_WITH_CUDNN
    libraries += text(", CUDA ", CUDART_VERSION / 1000, ".", CUDART_VERSION % 1000 / 10);
    gpus = text(", ", dptk::cuda::device_count(), " GPUs");
#endif
    const long gib = sysconf(_SC_PHYS_PAGES) / ((1L << 30) / sysconf(_SC_PAGESIZE));
    const std::string own =
        text(dptk::detail::host_name(), ": may use ", std::thread::hardware_concurrency(), " of ",
             sysconf(_SC_NPROCESSORS_ONLN), " cores, ", gib, " GiB of memory", gpus);
    const std::vector<std::string> all = group.gather_object(own);  // empty on the other ranks
    if (group.rank() == 0)
        std::printf("%s\n%d ranks over %s\n", libraries.c_str(), group.size(), group.backend().c_str());
    for (std::size_t rank = 0; rank < all.size(); ++rank)
        std::printf("rank %zu on %s\n", rank, all[rank].c_str());
}

// Returns the value in the middle, or the lower one of two, so that one of two ranks can be slow.
double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values.at((values.size() - 1) / 2);
}

// Measures forward and backward on each rank alone, without waiting for the others.
template <class Net>
void print_slowest(dptk::ProcessGroup& group, Net& net, std::size_t batch, auto wait) {
    typename Net::Tensor images, gradient;
    images.resize(batch, net.input_shape());
    gradient.resize(batch, net.output_shape());
    std::vector<double> seconds;
    for (int pass = 0; pass < 5; ++pass) {
        const auto begin = std::chrono::steady_clock::now();
        net.forward(images);
        net.backward(gradient);
        wait();  // for the GPU
        seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    const std::vector<double> all = group.all_gather_value(median(seconds));
    const auto slowest = std::ranges::max_element(all);
    if (group.rank() != 0) return;
    for (std::size_t rank = 0; rank < all.size(); ++rank)
        std::printf("rank %zu computes a batch in %.1f ms\n", rank, all[rank] * 1000);
    std::printf("slowest: rank %td, which takes %.2f times the median\n", slowest - all.begin(),
                *slowest / median(all));
}

template <class Backend>
void train(dptk::ProcessGroup& group, const Options& options, Backend backend, auto wait) {
    const auto folder = dptk::on_all_or_none(group, [&] {
        return options.data.empty() ? nullptr : std::make_unique<dptk::ImageFolder>(options.data);
    });
    const std::size_t size = options.image_size,
                      images_per_step = options.batch_size * std::size_t(group.size());
    const Images training(folder.get(), size, options.iterations * images_per_step);
    const Images test(folder.get(), size, images_per_step);
    const dptk::nn::ModelOptions model = {.input = {3, size, size},
                                          .classes = folder ? folder->classes() : 10,
                                          .stem = size < 64 ? dptk::nn::Stem::small : dptk::nn::Stem::large};
    dptk::nn::Network<Backend> net(
        dptk::on_all_or_none(group, [&] { return dptk::nn::make_model(options.model, model); }), options.seed,
        std::move(backend));
    dptk::Trainer trainer(group, net,
                          {.epochs = options.epochs,
                           .batch_size = options.batch_size,
                           .sgd = {.lr = 0.001, .momentum = 0.9},
                           .seed = options.seed,
                           .transform = {dptk::RandomResizedCrop(size), dptk::Normalize(dptk::imagenet)},
                           .evaluation_transform = {dptk::Resize(size), dptk::CenterCrop(size),
                                                    dptk::Normalize(dptk::imagenet)}});
    if (group.rank() == 0)
        std::printf("%s, %zu images of %zu x %zu pixels, batches of %zu\n", options.model.c_str(),
                    training.size(), size, size, options.batch_size);
    const bool is_terminal = isatty(STDOUT_FILENO) != 0 && isatty(STDERR_FILENO) != 0;
    trainer.add(dptk::ProgressBar(is_terminal ? dptk::ProgressStyle::bar : dptk::ProgressStyle::lines));
    trainer.fit(training, test);
    print_slowest(group, net, options.batch_size, wait);
}

void run(dptk::ProcessGroup& group, const Options& options) {
    print_environment(group);
    if (options.device == "gpu") {
#ifdef DPTK_WITH_CUDNN
        dptk::on_all_or_none(group,
                             [&] { dptk::cuda::set_device(dptk::cuda::local_device(group.local_rank())); });
        const dptk::cuda::Stream stream;
        return train(group, options, dptk::nn::Cuda({.stream = stream}), [&] { stream.synchronize(); });
#else
        return dptk::on_all_or_none(
            group, [] { throw dptk::ArgumentError("--device gpu: built without CUDA and cuDNN"); });
#endif
    }
#ifdef DPTK_WITH_ONEDNN
    const long share = sysconf(_SC_NPROCESSORS_ONLN) / group.local_size();
    const long threads = std::min<long>(share, std::thread::hardware_concurrency());
    dptk::nn::cpu::set_num_threads(static_cast<int>(std::max(1L, threads)));
    train(group, options, dptk::nn::Cpu{}, [] {});
#else
    train(group, options, dptk::nn::Reference<float>{}, [] {});
#endif
}

int main(int argc, char** argv) {
    int rank = 0;
    try {
        dptk::ProcessGroup group = dptk::init_process_group();
        rank = group.rank();
        Options options;
        CLI::App app("Prints what each rank has, trains for a few steps, and names the slowest rank.");
        declare(app, options);
        try {
            app.parse(argc, argv);
        } catch (const CLI::ParseError& error) {  // also --help
            std::ostringstream message;
            if (error.get_exit_code() != 0) message << "env_check: ";
            const bool is_help = app.exit(error, message, message) == 0;
            if (rank == 0) std::fputs(message.str().c_str(), is_help ? stdout : stderr);
            return is_help ? 0 : 2;
        }
        run(group, options);
        return 0;
    } catch (const dptk::Error& error) {
        if (!error.agreed() || rank == 0) std::fprintf(stderr, "env_check: %s\n", error.what());
    } catch (const std::exception& error) {
        std::fprintf(stderr, "env_check: rank %d: %s\n", rank, error.what());
    }
    return 2;
}
