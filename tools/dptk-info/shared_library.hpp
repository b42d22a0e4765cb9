// Loads an optional shared library with dlopen, so that dptk-info can be built without CUDA and reports the
// CUDA libraries that are installed.
#pragma once

#include <dlfcn.h>

#include <initializer_list>
#include <string>

namespace info {

class SharedLibrary {
  public:
    /// Loads the first of `names` that the loader finds in its search path or in CUDA's usual folder.
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
    /// Does not unload the library, because unloading a driver can crash.
    ~SharedLibrary() = default;

    [[nodiscard]] bool found() const noexcept { return handle_ != nullptr; }

    /// The function of this name; null if the library or the function does not exist.
    template <class Function>
    [[nodiscard]] Function* function(const char* name) const {
        return handle_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(handle_, name));
    }

  private:
    void* handle_ = nullptr;
};

}  // namespace info
