// Fine-tunes a network on a folder of images that has a folder for each class, on all ranks together:
//   mpirun -np 2 finetune --data flowers --weights resnet34.safetensors --freeze-layers
// scripts/convert-weights writes such a file from torchvision's weights. A fifth of the images is for
// testing.
#include <CLI/CLI.hpp>
#include <dptk/core/detail/suggestion.hpp>
#include <dptk/data/dataset_views.hpp>
#include <dptk/data/images/image_folder.hpp>
#include <dptk/data/random_split.hpp>
#include <dptk/train.hpp>
#include <dptk/train/checkpoint/checkpoint.hpp>
#include <dptk/weights/load_weights.hpp>
#include <dptk/weights/make_model_for.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

#ifdef DPTK_WITH_ONEDNN
using Backend = dptk::nn::Cpu;
#else
using Backend = dptk::nn::Reference<float>;
#endif

struct Options {
    std::string data, weights, work_dir, model = "resnet34";
    bool freeze_layers = false, sync_bn = false, skip_damaged = false, keep_hidden = false;
    int epochs = 30;
    std::size_t batch_size = 16, image_size = 224;
    double lr = 0.001, lrf = 0.1;
    std::uint64_t seed = 0;
};

void add_options(CLI::App& app, Options& options) {
    app.option_defaults()->always_capture_default();
    app.add_option("--data", options.data, "folder with a folder of images for each class")->required();
    app.add_flag("--skip-damaged", options.skip_damaged, "use the next image instead of a damaged one");
    app.add_flag("--keep-hidden", options.keep_hidden,
                 "use folders and files whose names begin with a dot, too");
    app.add_option("--model", options.model, "network");
    app.add_option("--weights", options.weights, "safetensors file to begin with");
    app.add_flag("--freeze-layers", options.freeze_layers, "train only the last layer");
    app.add_flag("--sync-bn", options.sync_bn, "compute batch norms over all ranks");
    app.add_option("--epochs", options.epochs, "passes over the training images");
    app.add_option("--batch-size", options.batch_size, "images per step and rank");
    app.add_option("--image-size", options.image_size, "width and height of the crops");
    app.add_option("--lr", options.lr, "learning rate of one rank; N ranks have N times this");
    app.add_option("--lrf", options.lrf, "fraction of it that the cosine schedule ends at");
    app.add_option("--seed", options.seed, "seed of split, values and order");
    app.add_option("--work-dir", options.work_dir, "folder for checkpoints and TensorBoard");
}

/// Returns what is wrong with the command line, with the option that an unknown one may have meant.
std::string describe(const CLI::App& app, const CLI::ParseError& error) {
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options()) names.push_back(option->get_name());
    const std::vector<std::string> unknown = app.remaining();
    return error.what() + (unknown.empty() ? "" : dptk::detail::suggestion(unknown.front(), names));
}

dptk::nn::Graph graph_of(const Options& options, std::size_t classes) {
    const auto stem = options.image_size < 64 ? dptk::nn::Stem::small : dptk::nn::Stem::large;
    const dptk::nn::ModelOptions model{
        .input = {3, options.image_size, options.image_size}, .classes = classes, .stem = stem};
    dptk::nn::Graph graph =
        options.weights.empty()
            ? dptk::nn::make_model(options.model, model)
            : dptk::make_model_for(dptk::SafetensorsFile(options.weights), options.model, model);
    if (options.sync_bn) graph.synchronize_batch_norms();
    return graph;
}

/// Returns the names of all parameters but those of the last layer.
std::vector<std::string> all_but_head(const dptk::nn::Graph& graph) {
    const std::vector<dptk::nn::ParameterSpec> parameters = graph.parameters();
    const std::string& last = parameters.back().name;
    const std::string_view head = std::string_view(last).substr(0, last.rfind('.') + 1);
    std::vector<std::string> names;
    for (const dptk::nn::ParameterSpec& parameter : parameters)
        if (!parameter.name.starts_with(head)) names.push_back(parameter.name);
    return names;
}

void fine_tune(dptk::ProcessGroup& group, const Options& options) {
    const bool prints = group.rank() == 0;
    const auto images = dptk::on_all_or_none(group, [&] {
        return dptk::ImageFolder(
            options.data,
            {.skip_damaged = options.skip_damaged, .keep_hidden = options.keep_hidden, .rank = group.rank()});
    });
    dptk::compare_datasets(group, images);
    const dptk::SplitIndices split = dptk::random_split(images.size(), 0.2, options.seed);
    const dptk::Subset training(images, split.training), test(images, split.validation);
    if (prints)
        std::printf("%zu classes, %zu images to train with, %zu to test with\n", images.classes(),
                    training.size(), test.size());

    const dptk::nn::Graph graph =
        dptk::on_all_or_none(group, [&] { return graph_of(options, images.classes()); });
    dptk::nn::Network<Backend> net(graph, options.seed);
    if (!options.weights.empty()) {
        const dptk::LoadedWeights loaded = dptk::on_all_or_none(group, [&] {
            return dptk::load_weights(net, dptk::SafetensorsFile(options.weights), dptk::Match::partial);
        });
        if (prints) std::printf("%s: %s\n", options.weights.c_str(), loaded.describe().c_str());
    }

    const std::size_t size = options.image_size;
    dptk::Trainer trainer(group, net,
                          {.epochs = options.epochs,
                           .batch_size = options.batch_size,
                           .sgd = {.lr = options.lr * group.size(), .momentum = 0.9, .weight_decay = 0.005},
                           .freeze = options.freeze_layers ? all_but_head(graph) : std::vector<std::string>(),
                           .seed = options.seed,
                           .transform = {dptk::RandomResizedCrop(size), dptk::RandomHorizontalFlip(),
                                         dptk::Normalize(dptk::imagenet)},
                           .evaluation_transform = {dptk::Resize(size * 8 / 7), dptk::CenterCrop(size),
                                                    dptk::Normalize(dptk::imagenet)}});
    trainer.add(dptk::LearningRate(
        dptk::CosineSchedule({.total = static_cast<double>(options.epochs), .final_factor = options.lrf})));
    trainer.add(dptk::StopOnSignal());
    if (!options.work_dir.empty()) {
        trainer.add(dptk::Checkpoint(options.work_dir));  // also continues a run that was interrupted
        trainer.add(dptk::TensorBoard(options.work_dir));
    }
    trainer.add(dptk::ProgressBar(prints ? dptk::ProgressStyle::lines : dptk::ProgressStyle::none));
    const dptk::TrainingStatus status = trainer.fit(training, test);
    if (prints && status.test.samples > 0) std::printf("test accuracy: %.3f\n", status.test.accuracy);
}

}  // namespace

int main(int argc, char** argv) {
    int rank = 0;
    try {
        const dptk::StopSignals signals;
        dptk::ProcessGroup group = dptk::init_process_group();
        rank = group.rank();
#ifdef DPTK_WITH_ONEDNN
        const int cores = static_cast<int>(std::thread::hardware_concurrency());
        dptk::nn::cpu::set_num_threads(std::max(1, cores / group.local_size()));
#endif
        Options options;
        CLI::App app("Fine-tunes a network on a folder of images. Start it alone, or with mpirun -np N.");
        add_options(app, options);
        try {
            app.parse(argc, argv);
        } catch (const CLI::ParseError& error) {
            const bool is_help = error.get_exit_code() == 0;
            if (rank == 0 && is_help) std::fputs(app.help().c_str(), stdout);
            if (rank == 0 && !is_help) std::fprintf(stderr, "finetune: %s\n", describe(app, error).c_str());
            return is_help ? 0 : 1;
        }
        fine_tune(group, options);
        return 0;
    } catch (const dptk::Error& error) {
        if (!error.agreed() || rank == 0) std::fprintf(stderr, "finetune: %s\n", error.what());
    } catch (const std::exception& error) {
        std::fprintf(stderr, "finetune: rank %d: %s\n", rank, error.what());
    }
    return 1;
}
