/// The OpenMP runtime that the program has loaded, usually for oneDNN: libgomp, or libomp, which exports
/// libgomp's functions as well. A direct call of its functions would require every program that includes dptk
/// to be compiled with OpenMP, and might load a second runtime.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstddef>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

class OpenMp {
  public:
    /// Finds a function of a loaded library by its name. Returns null if no library has it.
    template <class Function>
    [[nodiscard]] static Function* find(const char* name) noexcept {
        return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
    }

    /// Returns the runtime that was loaded at the first call.
    [[nodiscard]] static const OpenMp& runtime() noexcept {
        static const OpenMp loaded;
        return loaded;
    }

    /// Returns the number of threads of the team that computes for the calling thread; 0 if there is no
    /// runtime.
    [[nodiscard]] int threads() const noexcept { return max_threads_ == nullptr ? 0 : max_threads_(); }

    /// Calls function(data) on each thread of the team that computes for the calling thread, including
    /// itself: only there if there is no runtime.
    void on_team(void (*function)(void*), void* data) const {
        if (in_parallel_ != nullptr && parallel_ != nullptr && in_parallel_() == 0 && threads() > 1) {
            parallel_(function, data, 0, 0);
        } else {
            function(data);
        }
    }

    /// Calls visit(i) for each i below `count`, once, on the threads of the team. `visit` must not throw.
    template <class Visit>
    void for_each(std::size_t count, Visit&& visit) const {
        struct Items {
            Visit& visit;
            std::size_t count;
            std::atomic<std::size_t> next = 0;
        } all{visit, count};
        const auto take_items = [](void* data) {
            Items& left = *static_cast<Items*>(data);
            for (std::size_t i = left.next++; i < left.count; i = left.next++) left.visit(i);
        };
        on_team(take_items, &all);
    }

  private:
    OpenMp() = default;

    int (*max_threads_)() = find<int()>("omp_get_max_threads");
    int (*in_parallel_)() = find<int()>("omp_in_parallel");
    void (*parallel_)(void (*)(void*), void*, unsigned,
                      unsigned) = find<void(void (*)(void*), void*, unsigned, unsigned)>("GOMP_parallel");
};

}  // namespace DPTK_NAMESPACE::detail
