// Fake NVIDIA driver, libcuda.so.1, with FAKE_GPUS GPUs (0: cuInit fails). It implements the functions that
// dptk-info calls.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

int gpus() {
    const char* count = std::getenv("FAKE_GPUS");
    return count == nullptr ? 1 : std::atoi(count);
}

constexpr int success = 0, no_device = 100;

}  // namespace

extern "C" {

int cuInit(unsigned) {
    return gpus() == 0 ? no_device : success;
}

int cuGetErrorName(int, const char** name) {
    *name = "CUDA_ERROR_NO_DEVICE";
    return success;
}

int cuDriverGetVersion(int* version) {
    *version = 11080;
    return success;
}

int cuDeviceGetCount(int* count) {
    *count = gpus();
    return success;
}

int cuDeviceGet(int* device, int index) {
    *device = index;
    return success;
}

int cuDeviceGetName(char* name, int size, int device) {
    std::snprintf(name, static_cast<std::size_t>(size), "Imaginary GPU %d", device);
    return success;
}

int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
    *bytes = std::size_t{80} << 30;
    return success;
}

int cuDeviceGetPCIBusId(char* id, int size, int device) {
    std::snprintf(id, static_cast<std::size_t>(size), "0000:%02x:00.0", device + 1);
    return success;
}

int cuDeviceGetUuid(unsigned char* uuid, int device) {
    std::memset(uuid, device + 1, 16);
    return success;
}
}
