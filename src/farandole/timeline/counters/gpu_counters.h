// Reads a GPU's load, memory, power and temperature from the driver's NVML library, which is
// loaded at run time.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace farandole {

class GpuCounters {
 public:
  struct Sample {
    double utilization_percent = 0;  // share of the driver's last sampling period in which a kernel ran
    double memory_mib = 0;           // used on the device by all processes
    std::optional<double> power_w, celsius;
  };

  // `device` is a PCI bus id ("0000:1b:00.0", as cudaDeviceGetPCIBusId returns it), a UUID ("GPU-…", "MIG-…")
  // or NVML's index ("0"; it is not CUDA's index, which CUDA_VISIBLE_DEVICES changes). Returns nullptr if
  // there is no driver or no such device.
  static std::unique_ptr<GpuCounters> open(const std::string& device);
  // Whether the driver answers and has a device that this process may use.
  static bool any_device();
  ~GpuCounters();
  GpuCounters(const GpuCounters&) = delete;
  GpuCounters& operator=(const GpuCounters&) = delete;

  std::optional<Sample> sample() const;  // std::nullopt if the device gives no values (MIG, a lost GPU)

 private:
  struct Nvml;
  explicit GpuCounters(std::unique_ptr<Nvml> nvml);
  std::unique_ptr<Nvml> nvml_;
};

// Returns a device as for GpuCounters::open(), or "" if the rank must not use any GPU. `visible_devices` is
// CUDA_VISIBLE_DEVICES, or nullptr if it is not set. If it is not set, local ranks take the node's GPUs in
// turn, by NVML's numbers; these are CUDA's numbers if all GPUs are of one model. If it is a list, local
// ranks take its entries in turn and start again after the last entry. So a list with one entry, which a
// launcher sets per rank, gives that GPU to the rank.
std::string gpu_of_rank(int local_rank, const char* visible_devices);

}  // namespace farandole
