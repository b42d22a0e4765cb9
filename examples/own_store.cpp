// A custom store for the rendezvous of a job's processes: a shared folder with a file for each key. Build and
// run:
//   g++ -std=c++20 -I include examples/own_store.cpp -o own_store
//   dptk-run --nproc-per-node 2 -- ./own_store "$(mktemp -d)"
#include <dptk/comm/tcp.hpp>
#include <dptk/ddp.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cctype>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

// dptk stores few keys with small values, and calls the store from several threads. dptk's own stores are
// dptk::FileStore, dptk::TcpStore and dptk::InProcessStore.
class FolderStore : public dptk::Store {
  public:
    // The folder must exist, and must be empty before the job starts.
    explicit FolderStore(std::filesystem::path folder) : folder_(std::move(folder)) {}

    void set(std::string_view key, std::string_view value) override {
        const Lock lock(folder_);
        write(key, value);
    }

    std::optional<std::string> find(std::string_view key) override {
        const Lock lock(folder_);
        return read(key);
    }

    std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
        const auto deadline = std::chrono::steady_clock::now() + timeout;
        while (true) {
            const bool is_late = std::chrono::steady_clock::now() >= deadline;
            if (std::optional<std::string> value = find(key)) return std::move(*value);
            if (is_late) throw dptk::TimeoutError("no value for key " + std::string(key));
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
    }

    void wait(std::span<const std::string> keys, std::chrono::milliseconds timeout) override {
        const auto deadline = std::chrono::steady_clock::now() + timeout;
        for (const std::string& key : keys) {
            const auto left = deadline - std::chrono::steady_clock::now();
            static_cast<void>(get(key, std::chrono::ceil<std::chrono::milliseconds>(left)));
        }
    }

    // add and compare_and_set must be atomic: two processes that add 1 get 1 and 2.
    std::int64_t add(std::string_view key, std::int64_t amount) override {
        const Lock lock(folder_);
        const std::int64_t sum = std::stoll(read(key).value_or("0")) + amount;
        write(key, std::to_string(sum));
        return sum;
    }

    std::string compare_and_set(std::string_view key, std::string_view expected,
                                std::string_view desired) override {
        const Lock lock(folder_);
        const std::string found = read(key).value_or("");
        if (found != expected) return found;
        write(key, desired);
        return std::string(desired);
    }

    bool erase(std::string_view key) override {
        const Lock lock(folder_);
        return std::filesystem::remove(path_of(key));
    }

    // This store cannot detect that a process has died, so it ignores last wills.
    void set_last_will(std::string_view, std::string_view) override {}

    std::shared_ptr<dptk::Store> clone() override { return std::make_shared<FolderStore>(folder_); }

  private:
    // A file lock that one thread of one process holds at a time.
    class Lock {
      public:
        explicit Lock(const std::filesystem::path& folder)
            : descriptor_(::open((folder / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
            if (descriptor_ < 0 || ::flock(descriptor_, LOCK_EX) != 0)
                throw dptk::PeerLostError("cannot lock the store " + folder.string());
        }
        Lock(const Lock&) = delete;
        Lock& operator=(const Lock&) = delete;
        ~Lock() { ::close(descriptor_); }

      private:
        int descriptor_;
    };

    // Returns the path of a key's file. Characters other than letters and digits are written as %XX.
    [[nodiscard]] std::filesystem::path path_of(std::string_view key) const {
        constexpr std::string_view digits = "0123456789abcdef";
        std::string name = "key.";
        for (const char character : key) {
            const auto byte = static_cast<unsigned char>(character);
            const bool is_plain = std::isalnum(byte) != 0;
            if (is_plain) name += character;
            if (!is_plain) name += {'%', digits[byte >> 4], digits[byte & 15]};
        }
        if (key.empty() || name.size() > 255)
            throw dptk::ArgumentError("invalid key of " + std::to_string(key.size()) +
                                      " bytes: expected a file name of 5 to 255 bytes, got " +
                                      std::to_string(name.size()));
        return folder_ / name;
    }

    [[nodiscard]] std::optional<std::string> read(std::string_view key) const {
        std::ifstream file(path_of(key), std::ios::binary);
        if (!file) return std::nullopt;
        return std::string(std::istreambuf_iterator<char>(file), {});
    }

    void write(std::string_view key, std::string_view value) const {
        std::ofstream file(path_of(key), std::ios::binary | std::ios::trunc);
        file << value;
        if (!file.flush()) throw dptk::PeerLostError("cannot write to the store " + folder_.string());
    }

    std::filesystem::path folder_;
};

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "own_store: expected 1 argument, an empty folder that all ranks share, got %d\n",
                     argc - 1);
        return 1;
    }
    dptk::ProcessGroup group = dptk::init_process_group({.store = std::make_shared<FolderStore>(argv[1])});
    const int sum = group.all_reduce_value(group.rank() + 1, dptk::ReduceOp::sum);
    if (group.rank() == 0)
        std::printf("%d ranks, connected through a folder: the sum is %d\n", group.size(), sum);
}
