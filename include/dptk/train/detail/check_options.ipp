#pragma once

#include "dptk/train/detail/check_options.hpp"

#include "dptk/core/detail/text.hpp"
#include "dptk/data/data_loader.hpp"
#include "dptk/train/detail/parameter_selection.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::string problem_of_options(const TrainerOptions& options) {
    if (options.batch_size == 0) return "Trainer: batch_size must be at least 1, got 0";
    if (options.accumulate == 0) return "Trainer: accumulate must be at least 1, got 0";
    if (options.accumulate > 1 && options.reproducible_shards > 0)
        return "Trainer: accumulate and reproducible_shards cannot be combined: use more shards";
    if (options.epochs < 1) return text("Trainer: epochs must be at least 1, got ", options.epochs);
    if (options.comm_hook && options.reproducible_shards > 0)
        return "Trainer: comm_hook and reproducible_shards cannot be combined; set only one of them";
    const bool is_fused = options.fused_step == FusedStep::yes;
    if ((options.shard_optimizer || is_fused) && (options.comm_hook || options.reproducible_shards > 0))
        return text("Trainer: ", options.shard_optimizer ? "shard_optimizer" : "fused_step", " and ",
                    options.comm_hook ? "comm_hook" : "reproducible_shards",
                    " cannot be combined; set only one of them");
    if (!(options.label_smoothing >= 0 && options.label_smoothing < 1))
        return text("Trainer: label_smoothing must be in [0, 1), got ", options.label_smoothing);
    if (options.workers.value_or(0) > most_workers)
        return text("Trainer: workers must be at most ", most_workers, ", got ", *options.workers);
    return "";
}

DPTK_INLINE std::string optimizer_name(const TrainerOptions& options) {
    switch (options.optimizer) {
        case OptimizerKind::adam: return "adam";
        case OptimizerKind::adamw: return "adamw";
        case OptimizerKind::sgd: break;
    }
    return options.sgd.momentum == 0 ? "sgd" : "sgd with momentum";
}

DPTK_INLINE double initial_lr(const TrainerOptions& options) {
    return options.optimizer == OptimizerKind::sgd ? options.sgd.lr : options.adam.lr;
}

DPTK_INLINE std::string options_table(const TrainerOptions& options) {
    const SGDOptions& sgd = options.sgd;
    const AdamOptions& adam = options.adam;
    const std::string optimizer = options.optimizer == OptimizerKind::sgd
                                      ? text("\nmomentum ", sgd.momentum, "\nweight_decay ", sgd.weight_decay,
                                             "\ndampening ", sgd.dampening, "\nnesterov ", sgd.nesterov)
                                      : text("\nbeta1 ", adam.beta1, "\nbeta2 ", adam.beta2, "\neps ",
                                             adam.eps, "\nweight_decay ", adam.weight_decay);
    return text("epochs ", options.epochs, "\nbatch_size ", options.batch_size, "\naccumulate ",
                options.accumulate, "\nlabel_smoothing ", options.label_smoothing, "\nseed ", options.seed,
                "\noptimizer ", optimizer_name(options), "\nlr ", initial_lr(options), optimizer,
                "\npixel_scale ", options.pixel_scale, "\nreproducible_shards ", options.reproducible_shards,
                "\nready ", options.ready == Ready::marked ? "marked" : "at_synchronize", "\ncomm_hook ",
                options.comm_hook ? options.comm_hook->description() : "none", "\nfused_step ",
                fused_step_name(options.fused_step), "\nshard_optimizer ", options.shard_optimizer,
                "\ncuda_graph ", options.cuda_graph, "\ntransform ", options.transform.describe(),
                "\nevaluation_transform ", options.evaluation_transform.describe(), pattern_lines(options));
}

}  // namespace DPTK_NAMESPACE::detail
