// Reads a GPU's load, memory, power and temperature from the driver's NVML, which is looked for at run time.
// Used by one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace farandole {

class GpuCounters {
 public:
  struct Sample {
    double utilization_percent = 0;  // share of the driver's last sampling period in which a kernel ran
    double memory_mib = 0;           // in use on the device, by all processes
    std::optional<double> power_w, celsius;
  };

  // `device` is a PCI bus id ("0000:1b:00.0", as cudaDeviceGetPCIBusId gives it), a UUID ("GPU-…", "MIG-…")
  // or NVML's index
  // ("0"; not CUDA's, which CUDA_VISIBLE_DEVICES changes). nullptr without a driver or such a device.
  static std::unique_ptr<GpuCounters> open(const std::string& device);
  ~GpuCounters();
  GpuCounters(const GpuCounters&) = delete;
  GpuCounters& operator=(const GpuCounters&) = delete;

  std::optional<Sample> sample() const;  // nullopt where the device does not tell (MIG, a lost GPU)

 private:
  struct Nvml;
  explicit GpuCounters(std::unique_ptr<Nvml> nvml);
  std::unique_ptr<Nvml> nvml_;
};

}  // namespace farandole
