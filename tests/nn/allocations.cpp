// Tests that training steps after the first ones allocate no heap memory. A separate program, since it
// replaces operator new.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <span>
#include <string_view>
#include <vector>

#include "dptk/nn/loss.hpp"
#include "dptk/nn/network.hpp"
#include "dptk/nn/reference/backend.hpp"
#include "dptk/optim/sgd.hpp"
#include "support.hpp"
#ifdef DPTK_WITH_ONEDNN
#include "dptk/nn/cpu/backend.hpp"
#endif

using namespace dptk::nn;

namespace {

/// Records the callers of operator new on one thread, as many as fit.
struct Calls {
    bool recorded = false;
    std::size_t count = 0;
    std::array<void*, 1000> from{};
};

thread_local constinit Calls calls;

void* allocate(std::size_t size, std::size_t alignment, void* from) {
    if (calls.recorded && calls.count < calls.from.size()) calls.from[calls.count++] = from;
    void* memory = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

}  // namespace

void* operator new(std::size_t size) {
    return allocate(size, alignof(std::max_align_t), __builtin_return_address(0));
}

void* operator new[](std::size_t size) {
    return allocate(size, alignof(std::max_align_t), __builtin_return_address(0));
}

void* operator new(std::size_t size, std::align_val_t alignment) {
    return allocate(size, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}

void* operator new[](std::size_t size, std::align_val_t alignment) {
    return allocate(size, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}

// Not inline, since GCC would otherwise warn that free does not match operator new.
[[gnu::noinline]] void operator delete(void* memory) noexcept {
    std::free(memory);
}

[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}

[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
    std::free(memory);
}

[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
    std::free(memory);
}

namespace {

/// oneDNN itself allocates memory for each primitive that it runs, which cannot be avoided.
bool is_in_onednn(void* address) {
    Dl_info module{};
    return ::dladdr(address, &module) != 0 &&
           std::string_view(module.dli_fname).find("libdnnl") != std::string_view::npos;
}

/// Returns how often `action` allocates heap memory, without the allocations in oneDNN.
template <class Action>
std::ptrdiff_t allocations(Action&& action) {
    calls = {.recorded = true};
    action();
    calls.recorded = false;
    return std::ranges::count_if(std::span(calls.from).first(calls.count),
                                 [](void* from) { return !is_in_onednn(from); });
}

/// Trains on batches of two sizes in turn, each in its own tensor.
template <class Backend>
class Training {
  public:
    Training(const std::vector<Operation>& layers, const Shape& sample)
        : net_(sequential(sample, layers), 3) {
        net_.for_each_parameter(
            [&](const dptk::ParameterRef& parameter) { parameters_.push_back(parameter); });
        for (const std::size_t n : {8U, 3U}) {
            batches_.push_back(testing::pattern_tensor<float>(1, testing::with_batch(n, sample)));
            labels_.emplace_back(n, std::uint8_t{1});
        }
    }

    void step() {
        for (std::size_t b = 0; b < batches_.size(); ++b) {
            static_cast<void>(softmax_cross_entropy(net_.forward(batches_[b]), labels_[b], gradient_));
            net_.backward(gradient_, InputGradient::compute);
            for (std::size_t i = 0; i < parameters_.size(); ++i) {
                const dptk::ParameterRef& parameter = parameters_[i];
                sgd_.step(i, std::span(static_cast<float*>(parameter.value), parameter.count),
                          std::span(static_cast<const float*>(parameter.gradient), parameter.count));
            }
        }
    }

  private:
    Network<Backend> net_;
    std::vector<dptk::ParameterRef> parameters_;
    std::vector<Tensor<float>> batches_;
    std::vector<std::vector<std::uint8_t>> labels_;
    Tensor<float> gradient_;
    dptk::SGD<float> sgd_{{.lr = 0.01, .momentum = 0.9}};
};

template <class Backend>
void check_step(const std::vector<Operation>& layers, const Shape& sample) {
    Training<Backend> training(layers, sample);
    CHECK(allocations([&] { training.step(); }) > 0);
    CHECK(allocations([&] { training.step(); }) == 0);
}

template <class Backend>
void check_steps() {
    SUBCASE(
        "of a convolutional network, with padded channels, copies between layouts and ReLUs in all places") {
        check_step<Backend>({Conv2d{.out_channels = 17, .kernel_size = 3, .padding = 1}, ReLU{}, MaxPool2d{2},
                             Conv2d{.out_channels = 32, .kernel_size = 3, .stride = 2, .padding = 1}, ReLU{},
                             Flatten{}, Linear{11}, ReLU{}, ReLU{}, Linear{3}},
                            {3, 9, 8});
    }
    SUBCASE("of an MLP") {
        check_step<Backend>({Flatten{}, ReLU{}, Linear{40}, ReLU{}, Linear{3}}, {1, 6, 6});
    }
}

}  // namespace

TEST_CASE("heap allocations are counted") {
    CHECK(allocations([] { ::operator delete(::operator new(1)); }) == 1);
}

TEST_CASE("a warmed-up training step in plain loops allocates no heap memory") {
    check_steps<Reference<float>>();
}

#ifdef DPTK_WITH_ONEDNN
TEST_CASE("a warmed-up training step on oneDNN allocates no heap memory, except in oneDNN itself") {
    check_steps<Cpu>();
}
#endif
