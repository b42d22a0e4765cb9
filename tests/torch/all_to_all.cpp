// all_to_all FOLDER: all_to_all with different counts for each pair of ranks, in each element type. Rank r
// writes what it has received to FOLDER/TYPE.r. all_to_all.py compares that with PyTorch's all_to_all_single.
#include <dptk/comm/gloo.hpp>
#include <dptk/ddp.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <fstream>
#include <iostream>
#include <string>
#include <type_traits>
#include <vector>

namespace {

/// Returns how many elements rank `from` sends to rank `to`: none for some pairs.
std::size_t count(int from, int to) {
    return static_cast<std::size_t>((3 * from + 5 * to) % 4);
}

template <class T>
T element(int from, int to, std::size_t i) {
    const int value = (50 * from + 10 * to + static_cast<int>(i)) % 100;
    if constexpr (std::is_arithmetic_v<T>) {
        return static_cast<T>(value);
    } else {
        return T(static_cast<float>(value));
    }
}

template <class T>
void write_received(dptk::ProcessGroup& group, const std::string& folder) {
    std::vector<T> sent;
    std::vector<std::size_t> counts, output_counts;
    std::size_t total = 0;
    for (int other = 0; other < group.size(); ++other) {
        counts.push_back(count(group.rank(), other));
        output_counts.push_back(count(other, group.rank()));
        total += output_counts.back();
        for (std::size_t i = 0; i < counts.back(); ++i) sent.push_back(element<T>(group.rank(), other, i));
    }
    std::vector<T> received(total);
    group.all_to_all(sent, received, counts, output_counts);
    std::ofstream file(
        folder + "/" + std::string(dptk::dtype_name(dptk::dtype_of<T>)) + "." + std::to_string(group.rank()),
        std::ios::binary);
    file.write(reinterpret_cast<const char*>(received.data()),
               static_cast<std::streamsize>(received.size() * sizeof(T)));
    if (!file.flush()) throw dptk::Error("cannot write to " + folder);
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 2) return 2;
    dptk::ProcessGroup group = dptk::init_process_group();
    const auto write = [&]<class... T>(std::type_identity<T>...) {
        (write_received<T>(group, argv[1]), ...);
    };
    write(std::type_identity<std::uint8_t>(), std::type_identity<std::int8_t>(),
          std::type_identity<std::int16_t>(), std::type_identity<std::int32_t>(),
          std::type_identity<std::int64_t>(), std::type_identity<dptk::float16>(),
          std::type_identity<dptk::bfloat16>(), std::type_identity<float>(), std::type_identity<double>());
    return 0;
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
