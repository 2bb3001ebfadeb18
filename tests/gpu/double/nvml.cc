// A test double of NVML with two devices, of which the second one does not give its power. The functions have
// the names and the arguments of nvml.h, of which no copy is installed with every toolkit.
#include <cstdlib>
#include <cstring>

namespace {

struct Device {
  const char *bus, *uuid;
};
const Device devices[] = {{"0000:1b:00.0", "GPU-aaaa"}, {"0000:3d:00.0", "GPU-bbbb"}};

template <class Same>
int find(const Device** found, Same same) {
  for (const auto& device : devices)
    if (same(device)) return *found = &device, 0;
  return 6;  // NVML_ERROR_NOT_FOUND
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  return std::getenv("NVML_DOUBLE_FAIL") != nullptr ? 9 : 0;  // NVML_ERROR_DRIVER_NOT_LOADED
}

int nvmlShutdown() {
  return 0;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = std::getenv("NVML_DOUBLE_EMPTY") != nullptr ? 0 : 2;
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, const Device** device) {
  return find(device, [&](const Device& each) { return &each == devices + index; });
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, const Device** device) {
  return find(device, [&](const Device& each) { return std::strcmp(each.bus, bus) == 0; });
}

int nvmlDeviceGetHandleByUUID(const char* uuid, const Device** device) {
  return find(device, [&](const Device& each) { return std::strcmp(each.uuid, uuid) == 0; });
}

int nvmlDeviceGetUtilizationRates(const Device* device, unsigned* gpu_and_memory) {
  gpu_and_memory[0] = device == devices ? 97 : 12;
  gpu_and_memory[1] = 30;
  return 0;
}

int nvmlDeviceGetMemoryInfo(const Device*, unsigned long long* total_free_used) {
  total_free_used[0] = 80ULL << 30;
  total_free_used[1] = 50ULL << 30;
  total_free_used[2] = 30ULL << 30;
  return 0;
}

int nvmlDeviceGetPowerUsage(const Device* device, unsigned* milliwatts) {
  *milliwatts = 412'500;
  return device == devices ? 0 : 3;  // NVML_ERROR_NOT_SUPPORTED
}

int nvmlDeviceGetTemperature(const Device*, int sensor, unsigned* celsius) {
  *celsius = 61;
  return sensor == 0 ? 0 : 2;  // NVML_ERROR_INVALID_ARGUMENT
}

}  // extern "C"
