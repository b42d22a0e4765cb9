#include "options.hpp"

#include <CLI/CLI.hpp>
#include <dptk/nn/models.hpp>

#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

#ifdef DPTK_WITH_CUDNN
constexpr bool is_built_with_cuda = true;
#else
constexpr bool is_built_with_cuda = false;
#endif

#ifdef DPTK_WITH_IMAGES
constexpr bool is_built_with_images = true;
#else
constexpr bool is_built_with_images = false;
#endif

#ifdef DPTK_WITH_WEIGHTS
constexpr bool is_built_with_weights = true;
#else
constexpr bool is_built_with_weights = false;
#endif

void check_dataset(const CLI::App& app, const Options& options) {
    if (options.dataset == "images") {
        if (!is_built_with_images)
            throw CLI::ValidationError(
                "--dataset images",
                "this program was built without libjpeg-turbo and libpng; install libjpeg62-turbo-dev and "
                "libpng-dev (Debian), or libjpeg-turbo-devel and libpng-devel (Fedora), and build it again");
    } else if (app.count("--image-size") > 0) {
        throw CLI::ValidationError("--image-size", "needs --dataset images");
    }
}

void check_files(const CLI::App& app, const Options& options) {
    for (const char* name : {"--resume", "--save-every", "--keep-last"}) {
        if (app.count(name) > 0 && options.work_dir.empty())
            throw CLI::ValidationError(name, "needs --work-dir");
    }
    if (!is_built_with_weights && !(options.work_dir.empty() && options.weights.empty()))
        throw CLI::ValidationError(options.weights.empty() ? "--work-dir" : "--weights",
                                   "this program was built without nlohmann-json; install "
                                   "nlohmann-json3-dev (Debian) or json-devel (Fedora), and build it again");
    if (options.evaluate && options.weights.empty() && options.work_dir.empty())
        throw CLI::ValidationError("--evaluate", "needs --weights or --work-dir");
    if (app.count("--milestones") > 0 && options.scheduler != "multi-step")
        throw CLI::ValidationError("--milestones", "needs --scheduler multi-step");
    if (options.ema > 0 && options.device == "cuda")
        throw CLI::ValidationError("--ema", "needs --device cpu");
}

/// Checks combinations of options, which CLI11 does not check.
void check_device(const CLI::App& app, const Options& options) {
    if (options.device == "cuda") {
        if (!is_built_with_cuda)
            throw CLI::ValidationError(
                "--device cuda",
                "this program was built without the trainer on a GPU, which needs nvcc and cuDNN 9");
        if (options.reproducible_shards > 0)
            throw CLI::ValidationError("--reproducible", "needs --device cpu");
        if (options.data_on_device && options.dataset == "images")
            throw CLI::ValidationError("--data-on-device", "--dataset images cannot be kept on the device");
        return;
    }
    for (const char* name : {"--precision", "--cuda-graph", "--data-on-device"}) {
        if (app.count(name) > 0) throw CLI::ValidationError(name, "needs --device cuda");
    }
}

}  // namespace

ParsedOptions parse_options(int argc, char** argv) {
    Options options;
    CLI::App app(
        "Trains an image classifier with one replica per rank. Start it alone, or with mpirun -np N.");
    app.option_defaults()->always_capture_default();
    const std::vector<std::string_view> models = dptk::nn::model_names();
    app.add_option("--model", options.model)
        ->check(CLI::IsMember(std::vector<std::string>(models.begin(), models.end())));
    app.add_flag("--summary", options.summary, "print the model's layers, parameters and FLOPs");
    app.add_flag("--sync-batch-norm", options.sync_batch_norm,
                 "compute batch norms over the batches of all ranks");
    app.add_option("--dataset", options.dataset)
        ->check(CLI::IsMember(
            {"digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "images", "npy", "synthetic"}));
    app.add_option(
           "--data", options.data,
           "folder of the dataset's files (default: the digits that ship with dptk); --dataset images "
           "may have several")
        ->type_name("DIR");
    app.add_option("--image-size", options.image_size, "width and height to which --dataset images crops")
        ->check(CLI::PositiveNumber);
    app.add_option("--workers", options.workers,
                   "threads per rank that read samples; default: 0, or for --dataset images, up to 8")
        ->check(CLI::Range(0, 1024));
    app.add_option("--epochs", options.epochs)->check(CLI::PositiveNumber);
    app.add_option("--batch-size", options.batch_size, "samples of each step per rank, or per shard")
        ->check(CLI::PositiveNumber);
    app.add_option("--optimizer", options.optimizer)->check(CLI::IsMember({"sgd", "adam", "adamw"}));
    app.add_option("--lr", options.lr, "learning rate")->check(CLI::NonNegativeNumber);
    app.add_option("--momentum", options.momentum, "of sgd")->check(CLI::NonNegativeNumber);
    app.add_option("--weight-decay", options.weight_decay)->check(CLI::NonNegativeNumber);
    app.add_option("--scheduler", options.scheduler, "how the learning rate falls")
        ->check(CLI::IsMember({"constant", "cosine", "linear", "multi-step"}));
    app.add_option("--milestones", options.milestones,
                   "epochs after which --scheduler multi-step divides the learning rate by 10")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--warmup", options.warmup, "epochs in which the learning rate rises")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--ema", options.ema,
                   "evaluate averages of the parameters with this decay, such as 0.999; 0: off")
        ->check(CLI::Range(0.0, 1.0));
    app.add_option("--patience", options.patience,
                   "end after this number of epochs without a better accuracy; 0: never")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--work-dir", options.work_dir, "folder for checkpoints, log.csv and TensorBoard's files")
        ->type_name("DIR");
    app.add_option("--resume", options.resume,
                   "auto: continue from the newest checkpoint in --work-dir; none: start from the beginning")
        ->check(CLI::IsMember({"auto", "none"}));
    app.add_option("--save-every", options.save_every, "steps between checkpoints within epochs; 0: none")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--keep-last", options.keep_last, "number of checkpoints that are kept; 0: all")
        ->check(CLI::Range(0, 1000000).description("2 or more"));
    app.add_option("--weights", options.weights,
                   "safetensors file to begin with; tensors of another name or shape are listed and skipped")
        ->type_name("FILE");
    app.add_flag("--evaluate", options.evaluate, "only evaluate, the weights or the newest checkpoint");
    app.add_option("--seed", options.seed, "seed of the initial parameters and of the order of samples");
    app.add_flag("--verify", options.verify,
                 "after each epoch, check that all ranks have the same parameters");
    app.add_option("--threads", options.threads, "compute threads per rank; 0: cores / ranks on this host")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--overlap", options.overlap,
                   "send gradients while others are computed; auto: if each rank has a spare core or a GPU")
        ->check(CLI::IsMember({"auto", "on", "off"}));
    app.add_option("--comm-hook", options.comm_hook, "how gradients are compressed before they are sent")
        ->check(CLI::IsMember({"none", "fp16", "bf16", "powersgd"}));
    app.add_option("--reproducible", options.reproducible_shards,
                   "number of shards of each step, for the same bits at every number of ranks; 0: off")
        ->type_name("SHARDS");
    app.add_option("--progress", options.progress, "how to show the progress")
        ->check(CLI::IsMember({"auto", "bar", "lines"}));
    app.add_option("--device", options.device, "what computes: the host's CPU, or one GPU per rank")
        ->check(CLI::IsMember({"cpu", "cuda"}));
    app.add_option("--precision", options.precision, "precision of the arithmetic on a GPU")
        ->check(CLI::IsMember({"fp32", "tf32", "bf16"}));
    app.add_flag("--cuda-graph", options.cuda_graph, "launch each step as one CUDA graph");
    app.add_flag("--data-on-device", options.data_on_device, "keep the whole dataset in the GPU's memory");
    try {
        app.parse(argc, argv);
        check_dataset(app, options);
        check_device(app, options);
        check_files(app, options);
        return {options, "", 0};
    } catch (const CLI::ParseError& error) {
        std::ostringstream text;
        const int status = app.exit(error, text, text);
        return {std::nullopt, text.str(), status};
    }
}
