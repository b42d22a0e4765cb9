#include "allocations/counter.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <span>
#include <string_view>

namespace {

constexpr std::size_t kept = 1000;  // allocations whose callers are kept

std::atomic<bool> is_counting = false;
std::atomic<std::size_t> count = 0;
std::array<std::array<void*, 12>, kept> callers{};

thread_local long until_failure = 0;  // allocations of this thread; 0: none fails

void* allocate(std::size_t size, std::size_t alignment) {
    if (until_failure > 0 && --until_failure == 0) throw std::bad_alloc();
    thread_local bool is_inside = false;  // backtrace() allocates
    if (is_counting && !is_inside) {
        is_inside = true;
        const std::size_t number = count++;
        if (number < kept) {
            callers[number] = {};
            static_cast<void>(backtrace(callers[number].data(), static_cast<int>(callers[number].size())));
        }
        is_inside = false;
    }
    void* memory = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

bool is_in_onednn(void* address) {
    Dl_info module{};
    return ::dladdr(address, &module) != 0 &&
           std::string_view(module.dli_fname).find("libdnnl") != std::string_view::npos;
}

/// Returns whether oneDNN called operator new: the frames above are allocate() and operator new themselves.
bool is_from_onednn(const std::array<void*, 12>& frames) {
    return std::ranges::any_of(std::span(frames).first(4), is_in_onednn);
}

}  // namespace

void* operator new(std::size_t size) {
    return allocate(size, alignof(std::max_align_t));
}

void* operator new[](std::size_t size) {
    return allocate(size, alignof(std::max_align_t));
}

void* operator new(std::size_t size, std::align_val_t alignment) {
    return allocate(size, static_cast<std::size_t>(alignment));
}

void* operator new[](std::size_t size, std::align_val_t alignment) {
    return allocate(size, static_cast<std::size_t>(alignment));
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

namespace test {

void fail_allocation_of_this_thread(long n) {
    until_failure = n;
}

void count_allocations() {
    count = 0;
    is_counting = true;
}

std::size_t counted_allocations() {
    is_counting = false;
    const std::size_t all = count;
    const auto known = std::span(callers).first(std::min(all, kept));
    return all - static_cast<std::size_t>(std::ranges::count_if(known, is_from_onednn));
}

void print_allocations() {
    for (const auto& frames : std::span(callers).first(std::min<std::size_t>(count, kept))) {
        if (is_from_onednn(frames)) continue;
        backtrace_symbols_fd(frames.data(),
                             static_cast<int>(std::ranges::find(frames, nullptr) - frames.begin()),
                             STDERR_FILENO);
        std::fprintf(stderr, "\n");
    }
}

}  // namespace test
