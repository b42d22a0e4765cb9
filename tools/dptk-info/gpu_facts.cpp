#include "gpu_facts.hpp"

#include <dptk/core/detail/text.hpp>

#include <array>
#include <cstdio>

#include "shared_library.hpp"

namespace info {

namespace {

using dptk::detail::text;
using Uuid = std::array<unsigned char, 16>;

/// The UUID in the format of nvidia-smi, "GPU-0f1e...".
[[nodiscard]] std::string uuid_text(const Uuid& uuid) {
    std::string out = "GPU-";
    for (std::size_t i = 0; i < uuid.size(); ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(uuid[i]));
        out += digits;
    }
    return out;
}

/// Calls functions of the CUDA driver API, which return 0 (CUDA_SUCCESS) on success.
class Driver {
  public:
    [[nodiscard]] bool found() const { return library_.found(); }

    template <class... Arguments>
    int call(const char* name, Arguments... arguments) const {
        const auto function = library_.function<int(Arguments...)>(name);
        return function == nullptr ? missing : function(arguments...);
    }

    [[nodiscard]] std::string error_name(int status) const {
        if (status == missing) return "function not found in libcuda.so.1";
        const char* name = nullptr;
        if (call("cuGetErrorName", status, &name) != 0 || name == nullptr) return text("error ", status);
        return name;
    }

    [[nodiscard]] Gpu describe(int device) const {
        Gpu gpu;
        char words[256] = {};
        if (call("cuDeviceGetName", &words[0], static_cast<int>(sizeof words), device) == 0) gpu.name = words;
        char bus_id[32] = {};
        if (call("cuDeviceGetPCIBusId", &bus_id[0], static_cast<int>(sizeof bus_id), device) == 0)
            gpu.bus_id = bus_id;
        std::size_t bytes = 0;
        if (call("cuDeviceTotalMem_v2", &bytes, device) == 0) gpu.memory = bytes;
        // The second version of the function distinguishes the MIG devices of a GPU.
        Uuid uuid = {};
        if (call("cuDeviceGetUuid_v2", &uuid, device) == 0 || call("cuDeviceGetUuid", &uuid, device) == 0)
            gpu.uuid = uuid_text(uuid);
        return gpu;
    }

  private:
    static constexpr int missing = -1;
    SharedLibrary library_{"libcuda.so.1"};
};

}  // namespace

GpuFacts find_gpu_facts() {
    GpuFacts facts;
    const Driver driver;
    if (!driver.found()) return facts;
    int count = 0;
    if (const int status = driver.call("cuInit", 0U); status != 0) {
        facts.problem = "cuInit: " + driver.error_name(status);
    } else if (const int counted = driver.call("cuDeviceGetCount", &count); counted != 0) {
        facts.problem = "cuDeviceGetCount: " + driver.error_name(counted);
    }
    for (int index = 0; index < count; ++index) {
        int device = 0;
        if (driver.call("cuDeviceGet", &device, index) == 0) facts.gpus.push_back(driver.describe(device));
    }
    return facts;
}

}  // namespace info
