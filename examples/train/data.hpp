// The datasets of the training example.
#pragma once

#include <dptk/core/tensor.hpp>
#include <dptk/data/image_dataset.hpp>
#include <dptk/data/transforms/image_transforms.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#ifdef DPTK_WITH_IMAGES
#include <dptk/data/dataset_views.hpp>
#include <dptk/data/images/image_folder.hpp>
#endif

#include "options.hpp"

template <class Dataset>
struct Data {
    Dataset train;
    Dataset test;
    dptk::Shape image = {};  // channels, height, width
    std::size_t classes = 0;
    std::vector<std::string> class_names = {};  // empty: the numbers of the classes
    double pixel_scale = 1.0 / 255;
    dptk::ImageTransforms transform = {};
    dptk::ImageTransforms test_transform = {};
    std::string remark = {};  // a message for the user; may be empty
};

/// Reads or generates the dataset that the options name, unless it is `images`. Throws dptk::Error for a
/// missing or invalid file.
[[nodiscard]] Data<dptk::ImageDataset> load_data(const Options& options);

#ifdef DPTK_WITH_IMAGES
/// The files of all classes, and the indices of those to train or to test with.
class ImageFiles {
  public:
    ImageFiles(std::shared_ptr<const dptk::ImageFolder> folder, std::vector<std::size_t> indices)
        : folder_(std::move(folder)), indices_(indices), subset_(*folder_, std::move(indices)) {}

    [[nodiscard]] std::size_t size() const { return subset_.size(); }
    [[nodiscard]] auto operator[](std::size_t index) const { return subset_[index]; }
    [[nodiscard]] std::uint64_t fingerprint() const { return subset_.fingerprint(); }
    [[nodiscard]] const std::vector<std::string>& class_names() const { return folder_->class_names(); }

    /// Returns the files at `indices`, in that order.
    [[nodiscard]] ImageFiles subset(std::span<const std::size_t> indices) const {
        std::vector<std::size_t> chosen;
        for (const std::size_t index : indices) chosen.push_back(indices_[index]);
        return {folder_, std::move(chosen)};
    }

  private:
    std::shared_ptr<const dptk::ImageFolder> folder_;
    std::vector<std::size_t> indices_;
    dptk::Subset<dptk::ImageFolder> subset_;
};

/// Finds the image files of the dataset `images`. `rank` is this process's, for log messages. Throws
/// dptk::Error for a missing or invalid file.
[[nodiscard]] Data<ImageFiles> find_images(const Options& options, int rank);
#endif
