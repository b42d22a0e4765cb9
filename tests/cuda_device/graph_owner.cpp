// cuda::Graph on a real GPU.
#include <doctest/doctest.h>
#include <dptk/core/cuda.hpp>

#include <cstdlib>
#include <stdexcept>
#include <vector>

namespace cuda = dptk::cuda;

namespace {

[[nodiscard]] bool is_launched() {
    return std::getenv("DPTK_TEST_RANKS") != nullptr;
}

/// Device memory that the stream sets to a value.
struct Bytes {
    cuda::Stream stream;
    cuda::DeviceBuffer<std::uint8_t> memory = cuda::to_device(std::vector<std::uint8_t>(4, 0), stream);

    void set(int value) {
        cuda::check(cudaMemsetAsync(memory.data(), value, memory.size(), stream.get()), "cudaMemsetAsync");
    }
    [[nodiscard]] int found() { return cuda::to_host(memory.span(), stream)[3]; }
};

}  // namespace

TEST_CASE("captured operations run at each launch, and not before" * doctest::skip(is_launched())) {
    Bytes bytes;
    const cuda::Graph graph = cuda::Graph::capture(bytes.stream, [&] { bytes.set(7); });
    CHECK(bytes.found() == 0);
    for (int turn = 0; turn < 2; ++turn) {
        bytes.set(1);
        graph.launch(bytes.stream);
        CHECK(bytes.found() == 7);
    }
}

TEST_CASE("a capture that fails leaves the stream as it was" * doctest::skip(is_launched())) {
    Bytes bytes;
    const auto capture = [&](auto&& fn) { static_cast<void>(cuda::Graph::capture(bytes.stream, fn)); };
    const auto check_stream = [&](int value) {
        CHECK_FALSE(cuda::is_capturing(bytes.stream));
        bytes.set(value);
        CHECK(bytes.found() == value);
    };
    CHECK_THROWS_AS(capture([&] {
                        bytes.set(9);
                        throw std::runtime_error("out of data");
                    }),
                    std::runtime_error);
    check_stream(2);
    CHECK_THROWS_AS(capture([&] { bytes.stream.synchronize(); }), dptk::BackendError);
    check_stream(3);
    CHECK_THROWS_AS(capture([&] { static_cast<void>(cudaStreamSynchronize(bytes.stream.get())); }),
                    dptk::BackendError);
    check_stream(4);
    CHECK_THROWS_AS(static_cast<void>(cuda::Graph::capture({}, [] {})), dptk::ArgumentError);
}
