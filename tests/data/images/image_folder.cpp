#include "dptk/data/images/image_folder.hpp"

#include <doctest/doctest.h>
#include <dptk/core/error.hpp>
#include <dptk/core/log.hpp>
#include <dptk/data/data_loader.hpp>
#include <dptk/data/dataset_views.hpp>
#include <dptk/data/random_split.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/failing_call.hpp"
#include "support/temporary_folder.hpp"

namespace {

namespace fs = std::filesystem;
using dptk::ImageFolder;

const fs::path files = DPTK_TEST_SOURCE_DIR "/data/images/files";

void put(const std::string& file, const fs::path& to) {
    fs::create_directories(to.parent_path());
    fs::copy_file(files / file, to, fs::copy_options::overwrite_existing);
}

void write(const fs::path& path, const std::string& text) {
    std::ofstream(path) << text;
}

/// A folder with three classes, and with files and folders that do not count.
struct Flowers {
    TemporaryFolder temporary;
    fs::path root = temporary / "flowers";

    Flowers() {
        put("rgb.jpg", root / "tulip" / "b.JPG");
        put("rgb.png", root / "tulip" / "a.png");
        put("gray.jpg", root / "daisy" / "z.jpeg");
        put("gray.png", root / "daisy" / "more" / "a.png");
        put("gray.png", root / "daisy" / "more-2" / "a.png");
        put("cmyk.jpg", root / "Rose" / "1.jpg");
        write(root / "daisy" / "notes.txt", "no image");
        write(root / "labels.txt", "no class");
    }
};

std::string problem_of(const auto& make) {
    try {
        make();
    } catch (const dptk::Error& error) {
        return error.what();
    }
    return "";
}

std::vector<std::string> names(const ImageFolder& images, const fs::path& root) {
    std::vector<std::string> all;
    for (const dptk::ImageFile& file : images.files())
        all.push_back(fs::relative(file.path, root).string() + ' ' + std::to_string(file.label));
    return all;
}

}  // namespace

TEST_CASE(
    "a folder has its classes in the order of their names, and the files of torchvision's ImageFolder") {
    const Flowers flowers;
    const ImageFolder images(flowers.root);
    CHECK(images.class_names() == std::vector<std::string>{"Rose", "daisy", "tulip"});
    CHECK(names(images, flowers.root) ==
          std::vector<std::string>{"Rose/1.jpg 0", "daisy/z.jpeg 1", "daisy/more/a.png 1",
                                   "daisy/more-2/a.png 1", "tulip/a.png 2", "tulip/b.JPG 2"});
    CHECK(images.size() == 6);
    CHECK(images[4].first == dptk::read_image(files / "rgb.png"));
    CHECK(images[4].second == 2);
    CHECK(images.skipped() == 0);
}

TEST_CASE("a list file has paths and labels") {
    const Flowers flowers;
    const fs::path list = flowers.root / "train.txt";
    write(list, "tulip/a.png 4\n\ndaisy/more/a.png\t0\r\n");
    put("rgb.jpg", flowers.root / "with space.jpg");
    std::ofstream(list, std::ios::app) << "with space.jpg  2";
    const ImageFolder images(list);
    CHECK(names(images, flowers.root) ==
          std::vector<std::string>{"tulip/a.png 4", "daisy/more/a.png 0", "with space.jpg 2"});
    CHECK(images.class_names() == std::vector<std::string>{"0", "1", "2", "3", "4"});
    CHECK(images[2].first == dptk::read_image(files / "rgb.jpg"));
    for (const std::string line : {"a.png", "a.png one", "a.png -1", "a.png 99999999999", "3"}) {
        write(list, "tulip/a.png 4\n" + line + "\n");
        CHECK(problem_of([&] { ImageFolder wrong(list); }) ==
              list.string() + ": line 2: expected a path and a label, an integer of at least 0, found \"" +
                  line + '"');
    }
}

TEST_CASE("several folders with the same classes, and lists, are one dataset") {
    const Flowers flowers, more;
    write(flowers.root / "list.txt", "tulip/a.png 1\n");
    const std::string root = flowers.root.string();
    CHECK(ImageFolder::from({root, more.root.string(), root + "/list.txt"}).size() == 13);
    CHECK(ImageFolder::from({root, more.root.string()}).class_names().size() == 3);
    fs::rename(more.root / "tulip", more.root / "violet");
    CHECK(problem_of([&] {
              static_cast<void>(ImageFolder::from({root, more.root.string()}));
          }) == "ImageFolder: " + more.root.string() + ": expected the same classes as in " + root +
                    ", found violet, which is not there, and not tulip");
    write(flowers.root / "list.txt", "tulip/a.png 3\n");
    CHECK(problem_of([&] {
              static_cast<void>(ImageFolder::from({root, root + "/list.txt"}));
          }) == "ImageFolder: " + root + " has 3 classes, but a list has the label 3");
    CHECK(problem_of([] { static_cast<void>(ImageFolder::from({})); }) ==
          "ImageFolder: expected a folder or a list file, found none");
}

TEST_CASE("class names can be read from a file, which must have as many") {
    const Flowers flowers;
    const fs::path file = flowers.root / "names.txt";
    write(file, "Rosa\r\nBellis\n\nTulipa\n");
    CHECK(ImageFolder(flowers.root, {.class_names = file}).class_names() ==
          std::vector<std::string>{"Rosa", "Bellis", "Tulipa"});
    write(file, "Rosa\nBellis\n");
    CHECK(problem_of([&] { ImageFolder(flowers.root, {.class_names = file}); }) ==
          "ImageFolder: " + file.string() + ": expected 3 class names, as the images have, found 2");
    CHECK(problem_of([&] { ImageFolder(flowers.root, {.class_names = "/no/file"}); }) ==
          "/no/file: byte 0: expected a readable file, found: No such file or directory");
}

TEST_CASE("sources without images are errors") {
    const Flowers flowers;
    const std::string root = flowers.root.string();
    CHECK(problem_of([&] { ImageFolder wrong(root + "/none"); }) ==
          "ImageFolder: " + root +
              "/none: expected a folder that has a folder of images for each class, or a list file, found "
              "nothing");
    CHECK(problem_of([&] { ImageFolder wrong(root + "/tulip"); }) ==
          "ImageFolder: " + root + "/tulip: expected a folder of images for each class, found no folder");
    fs::create_directories(flowers.root / "violet");
    CHECK(problem_of([&] { ImageFolder wrong(root); }) ==
          "ImageFolder: " + root +
              ": expected images of each class, found no .jpg, .jpeg or .png file for violet (1 of 4 classes "
              "have "
              "none)");
    write(flowers.root / "violet" / "a.WebP", "");
    CHECK(problem_of([&] { ImageFolder wrong(root); }) ==
          "ImageFolder: " + root +
              "/violet/a.WebP: expected JPEG and PNG images, found a file \"*.WebP\": convert it, or move it "
              "out of "
              "the folder");
    fs::remove_all(flowers.root / "violet");
    fs::create_directory_symlink(flowers.root / "tulip", flowers.root / "tulip" / "loop");
    CHECK(problem_of([&] { ImageFolder wrong(root); }).find("does a link lead back to it?") !=
          std::string::npos);
}

TEST_CASE("a damaged image is an error with its file and index, or is skipped, counted and logged once") {
    const Flowers flowers;
    write(flowers.root / "tulip" / "a.png", "damaged");
    const std::string path = (flowers.root / "tulip" / "a.png").string();
    const std::string problem = path + ": byte 0: expected a JPEG or PNG image, found another format";
    const ImageFolder strict(flowers.root);
    CHECK(problem_of([&] { static_cast<void>(strict[4]); }) == problem);
    dptk::DistributedSampler sampler(strict.size(), 1, 0, {.shuffle = false});
    dptk::DataLoader loader(strict, sampler, {.workers = 2, .transform = {dptk::Resize(8)}});
    const std::string in_loader = problem_of([&] {
        for (const auto& [pixels, labels] : loader) CHECK(labels.size() == 1);
    });
    CHECK(in_loader == "DataLoader: sample 4: " + problem);

    std::vector<std::string> lines;
    dptk::set_log_sink([&](dptk::LogLevel, int, std::string_view line) { lines.emplace_back(line); });
    const ImageFolder tolerant(flowers.root, {.skip_damaged = true});
    CHECK(tolerant[4].first == strict[5].first);
    CHECK(tolerant[4].second == 2);
    CHECK(tolerant.skipped() == 1);
    CHECK(lines ==
          std::vector<std::string>{
              "ImageFolder skips a damaged file, and uses the next one instead (1 until now): " + problem});
    for (const dptk::ImageFile& file : tolerant.files()) write(file.path, "");
    CHECK(problem_of([&] { static_cast<void>(tolerant[0]); }) == "ImageFolder: all 6 files are damaged");
    dptk::set_log_sink({});
    CHECK(lines.size() == 6);
}

TEST_CASE("names that begin with a dot are left out, told once, unless they are to be kept") {
    const Flowers flowers;
    const std::vector<std::string> before = names(ImageFolder(flowers.root), flowers.root);
    put("gray.png", flowers.root / ".ipynb_checkpoints" / "a-checkpoint.png");
    put("gray.png", flowers.root / "tulip" / ".ipynb_checkpoints" / "a-checkpoint.png");
    write(flowers.root / "tulip" / "._a.png", "no image");
    write(flowers.root / "tulip" / ".DS_Store", "no image");
    write(flowers.root / "daisy" / ".thumbnail.webp", "no image");
    std::vector<std::string> lines;
    dptk::set_log_sink([&](dptk::LogLevel level, int, std::string_view line) {
        CHECK(level == dptk::LogLevel::info);
        lines.emplace_back(line);
    });
    CHECK(names(ImageFolder(flowers.root), flowers.root) == before);
    CHECK(lines == std::vector<std::string>{
                       "ImageFolder: " + flowers.root.string() +
                       ": left out 4 folders and images whose names begin with a dot: .ipynb_checkpoints, "
                       "daisy/.thumbnail.webp, tulip/._a.png, ... (keep_hidden has them)"});
    fs::remove(flowers.root / "daisy" / ".thumbnail.webp");
    const ImageFolder all(flowers.root, {.keep_hidden = true});
    dptk::set_log_sink({});
    CHECK(lines.size() == 1);
    CHECK(all.class_names() == std::vector<std::string>{".ipynb_checkpoints", "Rose", "daisy", "tulip"});
    CHECK(names(all, flowers.root) ==
          std::vector<std::string>{".ipynb_checkpoints/a-checkpoint.png 0", "Rose/1.jpg 1", "daisy/z.jpeg 2",
                                   "daisy/more/a.png 2", "daisy/more-2/a.png 2", "tulip/._a.png 3",
                                   "tulip/a.png 3", "tulip/b.JPG 3",
                                   "tulip/.ipynb_checkpoints/a-checkpoint.png 3"});
    write(flowers.root / "list.txt", "tulip/.ipynb_checkpoints/a-checkpoint.png 0\n");
    CHECK(ImageFolder(flowers.root / "list.txt").size() == 1);
}

TEST_CASE("images that decoders warn of are read, and told once with their number and the first names") {
    const Flowers flowers;
    const fs::path unusual = files.parent_path() / "unusual";
    for (const char* name : {"1.jpg", "2.jpg", "3.jpg", "4.jpg"})
        fs::copy_file(unusual / "junk_before_end.jpg", flowers.root / "Rose" / name,
                      fs::copy_options::overwrite_existing);
    std::vector<std::string> lines;
    dptk::set_log_sink([&](dptk::LogLevel, int, std::string_view line) { lines.emplace_back(line); });
    {
        std::optional<ImageFolder> images(flowers.root);
        for (int epoch = 0; epoch < 2; ++epoch)
            for (std::size_t i = 0; i < images->size(); ++i) CHECK((*images)[i].first.channels == 3);
        const ImageFolder moved = *std::exchange(images, std::nullopt);
        CHECK(moved.size() == 9);
        CHECK(lines.empty());
    }
    dptk::set_log_sink({});
    const std::string rose = (flowers.root / "Rose").string();
    const std::string problem = " (Corrupt JPEG data: 56 extraneous bytes before marker 0xd9)";
    CHECK(lines == std::vector<std::string>{
                       "ImageFolder: 4 of 9 images are unusual, and have the pixels that Pillow decodes: " +
                       rose + "/1.jpg" + problem + ", " + rose + "/2.jpg" + problem + ", " + rose + "/3.jpg" +
                       problem + ", ..."});
}

TEST_CASE("a file or folder that the system cannot read is an error, and is not skipped as damaged") {
    const Flowers flowers;
    const ImageFolder images(flowers.root, {.skip_damaged = true});
    const std::string image = flowers.root / "tulip" / "a.png";
    const auto load = [&] { static_cast<void>(images[4]); };
    CHECK(test::wrong_on_failing<dptk::BackendError>({"open", "read"}, image, image, load) == "");
    CHECK(images.skipped() == 0);
    const auto open = [&](const fs::path& source, const fs::path& class_names) {
        return [=] { const ImageFolder folder(source, {.class_names = class_names}); };
    };
    const std::string list = flowers.root / "list.txt", names = flowers.root / "names.txt";
    write(list, "tulip/a.png 0\n");
    write(names, "Tulipa\n");
    CHECK(test::wrong_on_failing<dptk::BackendError>({"open", "read"}, list, list, open(list, "")) == "");
    CHECK(test::wrong_on_failing<dptk::BackendError>({"open", "read"}, names, names, open(list, names)) ==
          "");
    const std::string folder = flowers.root / "daisy";
    CHECK(test::wrong_on_failing<dptk::Error>({"open"}, folder, folder, open(flowers.root, "")) == "");
    fs::create_symlink(std::string(300, 'x'), flowers.root / "unknown");  // a name that no file can have
    CHECK(problem_of(open(flowers.root, "")).find("/unknown: File name too long") != std::string::npos);
}

TEST_CASE("the fingerprint depends on names and labels, and not on where the folder is") {
    const Flowers flowers;
    const auto before = ImageFolder(flowers.root).fingerprint();
    const fs::path moved = flowers.root.parent_path() / "moved";
    fs::rename(flowers.root, moved);
    CHECK(ImageFolder(moved).fingerprint() == before);
    CHECK(ImageFolder(moved.string() + '/').fingerprint() == before);
    const ImageFolder images(moved);
    const dptk::Subset first(images, {0, 1}), same(images, {0, 1}), other(images, {0, 2});
    CHECK(dptk::dataset_fingerprint(first) == dptk::dataset_fingerprint(same));
    CHECK(dptk::dataset_fingerprint(first) != dptk::dataset_fingerprint(other));
    fs::rename(moved / "tulip" / "a.png", moved / "tulip" / "c.png");
    CHECK(ImageFolder(moved).fingerprint() != before);
    const ImageFolder renamed(moved);
    CHECK(dptk::dataset_fingerprint(first) != dptk::dataset_fingerprint(dptk::Subset(renamed, {0, 1})));
}

TEST_CASE("a loader makes the same batches with any number of workers and ranks") {
    const Flowers flowers;
    const ImageFolder images(flowers.root);
    using Sample = std::pair<std::vector<float>, int>;
    const auto epoch = [&](std::size_t workers, std::size_t ranks) {
        std::vector<Sample> samples(images.size());
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            dptk::DistributedSampler sampler(images.size(), ranks, rank,
                                             {.seed = 7, .padding = dptk::Padding::none});
            sampler.set_epoch(3);
            dptk::DataLoader loader(images, sampler,
                                    {.batch_size = 2,
                                     .workers = workers,
                                     .transform = {dptk::RandomResizedCrop(12), dptk::RandomHorizontalFlip(),
                                                   dptk::Normalize(dptk::imagenet)}});
            std::size_t next = 0;
            for (const auto& [pixels, labels] : loader) {
                CHECK(pixels.shape() == dptk::Shape{labels.size(), 3, 12, 12});
                for (std::size_t i = 0; i < labels.size(); ++i, ++next) {
                    const auto values = pixels.values().subspan(i * 3 * 12 * 12, 3 * 12 * 12);
                    samples[next * ranks + rank] = {{values.begin(), values.end()}, labels[i]};
                }
            }
        }
        return samples;
    };
    const std::vector<Sample> expected = epoch(0, 1);
    CHECK(expected[0].first != expected[1].first);
    CHECK(epoch(1, 1) == expected);
    CHECK(epoch(4, 1) == expected);
    CHECK(epoch(2, 2) == expected);
    CHECK(epoch(0, 3) == expected);
}

TEST_CASE("a split by class has a share of each class, and at least one sample of it in both parts") {
    std::vector<int> labels(40, 7);  // 40 of class 7, 2 of each class 0 to 3, and 1 of class 4
    for (int i = 0; i < 8; ++i) labels.push_back(i % 4);
    labels.push_back(4);
    const auto count = [&](const std::vector<std::size_t>& indices, int label) {
        return std::count_if(indices.begin(), indices.end(),
                             [&](std::size_t i) { return labels[i] == label; });
    };
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
        const auto [training, validation] = dptk::split_by_class(labels, 0.2, seed);
        CHECK(training.size() + validation.size() == labels.size());
        CHECK(std::is_sorted(training.begin(), training.end()));
        CHECK(std::is_sorted(validation.begin(), validation.end()));
        CHECK(count(validation, 7) == 8);
        for (const int label : {0, 1, 2, 3}) {
            CHECK(count(validation, label) == 1);
            CHECK(count(training, label) == 1);
        }
        CHECK(count(training, 4) == 1);
        CHECK(dptk::split_by_class(labels, 0.2, seed).validation == validation);
    }
    CHECK(dptk::split_by_class(labels, 0.2, 1).validation != dptk::split_by_class(labels, 0.2, 2).validation);
    CHECK(dptk::split_by_class(labels, 0, 1).validation.empty());
    CHECK(dptk::split_by_class(labels, 1, 1).training.empty());
    CHECK_THROWS_WITH_AS(static_cast<void>(dptk::split_by_class(labels, -0.5, 1)),
                         "split_by_class: expected a fraction in [0, 1], found -0.5", dptk::ArgumentError);
}

TEST_CASE("a random split is the same for the same seed, and has each sample once") {
    const auto [training, validation] = dptk::random_split(100, 0.2, 5);
    CHECK(training.size() == 80);
    CHECK(validation.size() == 20);
    std::vector<bool> seen(100);
    for (const std::size_t index : training) seen[index] = true;
    for (const std::size_t index : validation) {
        CHECK(!seen[index]);
        seen[index] = true;
    }
    CHECK(std::count(seen.begin(), seen.end(), true) == 100);
    CHECK(std::is_sorted(validation.begin(), validation.end()));
    CHECK(dptk::random_split(100, 0.2, 5).validation == validation);
    CHECK(dptk::random_split(100, 0.2, 6).validation != validation);
    CHECK(dptk::random_split(3, 0, 1).training == std::vector<std::size_t>{0, 1, 2});
    CHECK(dptk::random_split(3, 1, 1).training.empty());
    CHECK_THROWS_WITH_AS(static_cast<void>(dptk::random_split(3, 1.5, 1)),
                         "random_split: expected a fraction in [0, 1], found 1.5", dptk::ArgumentError);
    const Flowers flowers;
    const ImageFolder images(flowers.root);
    const dptk::Subset part(images, dptk::random_split(images.size(), 0.5, 1).validation);
    CHECK(part[0].first.channels == 3);
}
