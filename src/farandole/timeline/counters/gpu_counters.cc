#include "farandole/timeline/counters/gpu_counters.h"

#include <string_view>
#include <vector>

#include "farandole/base/process/shared_library.h"
#include "farandole/base/text/parse_number.h"

namespace farandole {
namespace {

// CUDA reads the list only up to the first entry that is not a device.
std::vector<std::string> devices_in(std::string_view list) {
  std::vector<std::string> devices;
  while (true) {
    const auto comma = list.find(',');
    const auto entry = list.substr(0, comma);
    const bool is_uuid = entry.starts_with("GPU-") || entry.starts_with("MIG-");
    if (!is_uuid && !parse_number<unsigned>(entry)) return devices;
    devices.emplace_back(entry);
    if (comma == std::string_view::npos) return devices;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace

// The declarations of NVML's stable interface (nvml.h, CUDA Toolkit) that are needed. 0 means success.
struct GpuCounters::Nvml {
  using Device = struct nvmlDevice_st*;
  struct Utilization {
    unsigned gpu, memory;
  };
  struct Memory {
    unsigned long long total, free, used;
  };

  bool started = false;
  Device device = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, Device*) = nullptr;
  int (*by_bus)(const char*, Device*) = nullptr;
  int (*by_uuid)(const char*, Device*) = nullptr;
  int (*utilization)(Device, Utilization*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*power)(Device, unsigned* milliwatts) = nullptr;
  int (*temperature)(Device, int sensor, unsigned* celsius) = nullptr;

  Nvml() = default;
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() {
    if (started) shutdown();
  }

  // Whether the driver answers.
  bool start() {
    SharedLibrary library("FARANDOLE_NVML_LIBRARY", "libnvidia-ml.so.1");
    library.find(init, "nvmlInit_v2");
    library.find(shutdown, "nvmlShutdown");
    library.find(count, "nvmlDeviceGetCount_v2");
    library.find(by_index, "nvmlDeviceGetHandleByIndex_v2");
    library.find(by_bus, "nvmlDeviceGetHandleByPciBusId_v2");
    library.find(by_uuid, "nvmlDeviceGetHandleByUUID");
    library.find(utilization, "nvmlDeviceGetUtilizationRates");
    library.find(memory, "nvmlDeviceGetMemoryInfo");
    library.find(power, "nvmlDeviceGetPowerUsage");
    library.find(temperature, "nvmlDeviceGetTemperature");
    if (!library.why_not().empty()) return false;
    started = init() == 0;
    return started;
  }

  bool select(const std::string& name) {
    if (name.find(':') != std::string::npos) return by_bus(name.c_str(), &device) == 0;
    if (name.starts_with("GPU-") || name.starts_with("MIG-")) return by_uuid(name.c_str(), &device) == 0;
    const auto index = parse_number<unsigned>(name);
    return index && by_index(*index, &device) == 0;
  }
};

GpuCounters::GpuCounters(std::unique_ptr<Nvml> nvml) : nvml_(std::move(nvml)) {}
GpuCounters::~GpuCounters() = default;

std::unique_ptr<GpuCounters> GpuCounters::open(const std::string& device) {
  auto nvml = std::make_unique<Nvml>();
  if (device.empty() || !nvml->start() || !nvml->select(device)) return nullptr;
  return std::unique_ptr<GpuCounters>(new GpuCounters(std::move(nvml)));
}

bool GpuCounters::any_device() {
  Nvml nvml;
  unsigned devices = 0;
  return nvml.start() && nvml.count(&devices) == 0 && devices > 0;
}

std::optional<GpuCounters::Sample> GpuCounters::sample() const {
  Nvml::Utilization utilization{};
  Nvml::Memory memory{};
  if (nvml_->utilization(nvml_->device, &utilization) != 0 || nvml_->memory(nvml_->device, &memory) != 0)
    return std::nullopt;
  Sample sample{static_cast<double>(utilization.gpu), static_cast<double>(memory.used) / (1 << 20), {}, {}};
  constexpr int of_the_chip = 0;  // NVML_TEMPERATURE_GPU
  unsigned milliwatts = 0, celsius = 0;
  if (nvml_->power(nvml_->device, &milliwatts) == 0) sample.power_w = milliwatts * 1e-3;
  if (nvml_->temperature(nvml_->device, of_the_chip, &celsius) == 0) sample.celsius = celsius;
  return sample;
}

std::string gpu_of_rank(int local_rank, const char* visible_devices) {
  if (visible_devices == nullptr) return std::to_string(local_rank);
  const auto devices = devices_in(visible_devices);
  return devices.empty() ? "" : devices[static_cast<std::size_t>(local_rank) % devices.size()];
}

}  // namespace farandole
