// A custom dataset: the records of a file, which are read on demand. Build and run:
//   mpicxx -std=c++20 -DDPTK_WITH_MPI -I include examples/own_dataset.cpp -o own_dataset
//   mpirun -np 2 ./own_dataset
#include <dptk/ddp.hpp>

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>

struct Record {
    float inputs[4];
    float target;
};

// A dataset has size(), and an operator[] or a get(i) that returns sample i, which may have any type. The
// sampler uses only size().
class RecordFile {
  public:
    explicit RecordFile(const std::string& path)
        : path_(path), size_(std::filesystem::file_size(path) / sizeof(Record)) {}

    [[nodiscard]] std::size_t size() const { return size_; }

    [[nodiscard]] Record operator[](std::size_t i) const {
        Record record;
        std::ifstream file(path_, std::ios::binary);
        file.seekg(static_cast<std::streamoff>(i * sizeof record));
        if (!file.read(reinterpret_cast<char*>(&record), sizeof record))
            throw std::runtime_error(path_ + ": cannot read record " + std::to_string(i));
        return record;
    }

  private:
    std::string path_;
    std::size_t size_;
};

static_assert(dptk::IndexableDataset<RecordFile>);

// Writes 101 records, whose targets are 0, 1, 2, ...
void write_records(const std::string& path) {
    std::ofstream file(path, std::ios::binary);
    for (int i = 0; i < 101; ++i) {
        const Record record{{1, 2, 3, 4}, static_cast<float>(i)};
        file.write(reinterpret_cast<const char*>(&record), sizeof record);
    }
}

int main() {
    dptk::ProcessGroup group = dptk::init_process_group();
    const std::string path = (std::filesystem::temp_directory_path() / "dptk_own_dataset").string() + "." +
                             std::to_string(group.rank());
    write_records(path);
    const RecordFile records(path);
    // If reading may fail on one rank only, wrap it in dptk::on_all_or_none(group, [&] { ... }), which then
    // throws on all ranks.

    dptk::DistributedSampler sampler(records, group, {.shuffle = true, .padding = dptk::Padding::none});
    float sum = 0;
    int count = 0;
    for (const std::span<const std::size_t> batch : dptk::BatchSampler(sampler, 8)) {
        for (const std::size_t i : batch) sum += records[i].target;
        count += static_cast<int>(batch.size());
    }
    std::filesystem::remove(path);

    sum = group.all_reduce_value(sum, dptk::ReduceOp::sum);
    count = group.all_reduce_value(count, dptk::ReduceOp::sum);
    if (group.rank() == 0)
        std::printf("%d samples of %zu, with the sum %g\n", count, records.size(), static_cast<double>(sum));
}
