// The datasets of the training example.
#pragma once

#include <dptk/data/image_dataset.hpp>

#include <string>

#include "options.hpp"

struct Data {
    dptk::ImageDataset train;
    dptk::ImageDataset test;
    double pixel_scale;
    std::string remark;  // a message for the user; may be empty
};

/// Reads or generates the dataset that the options name. Throws dptk::Error for a missing or invalid file.
[[nodiscard]] Data load_data(const Options& options);
