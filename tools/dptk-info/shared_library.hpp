// A library that may or may not be installed: loaded while the program runs, so that dptk-info is built
// without CUDA and tells what there is.
#pragma once

#include <dlfcn.h>

#include <initializer_list>
#include <string>

namespace info {

class SharedLibrary {
  public:
    /// The first of `names` that the loader finds on its path or in CUDA's usual folder.
    explicit SharedLibrary(std::initializer_list<const char*> names) {
        for (const char* folder : {"", "/usr/local/cuda/lib64/"}) {
            for (const char* name : names) {
                handle_ = dlopen((std::string(folder) + name).c_str(), RTLD_LAZY | RTLD_LOCAL);
                if (handle_ != nullptr) return;
            }
        }
    }

    SharedLibrary(const SharedLibrary&) = delete;
    SharedLibrary& operator=(const SharedLibrary&) = delete;
    /// The library stays: drivers do not like to be unloaded.
    ~SharedLibrary() = default;

    [[nodiscard]] bool found() const noexcept { return handle_ != nullptr; }

    /// Null where the library, or the function in it, is not there.
    template <class Function>
    [[nodiscard]] Function* function(const char* name) const {
        return handle_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(handle_, name));
    }

  private:
    void* handle_ = nullptr;
};

}  // namespace info
