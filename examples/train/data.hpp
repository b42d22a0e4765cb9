// The datasets of the training example.
#pragma once

#include <dptk/data/image_dataset.hpp>

#include <string>

#include "options.hpp"

struct Data {
    dptk::ImageDataset train;
    dptk::ImageDataset test;
    double pixel_scale;
    std::string remark;  // what the user should know; empty for nothing
};

/// Reads or makes what the options name. Throws dptk::Error for a file that is missing or broken.
[[nodiscard]] Data load_data(const Options& options);
