// What each rank uses of its node: CPU, memory, files, GPU.
// Thread safety: call from the training thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "farandole/timeline/counters/counters.h"

namespace farandole {

class Job;

// What one rank has used since a ResourceMeter was made. The timeline has the same over time.
struct ResourceUsage {
  double cpu_percent = 0;              // 100: one core.
  double memory_mib = 0;               // Resident, the most since the process started.
  double read_mb = 0, written_mb = 0;  // From and to storage, without the page cache; 10⁶ bytes.
  // The mean load of the rank's GPU, and the most memory that all processes used on it; empty if there is
  // none or its driver does not answer.
  std::optional<double> gpu_percent{}, gpu_memory_mib{};
};

class ResourceMeter {
 public:
  // `job` must outlive this object. `gpu` as for GpuCounters::open().
  ResourceMeter(Job& job, const std::string& gpu);
  ~ResourceMeter();

  // Returns the usage of every rank, by rank.
  // Collective: every rank of the job must call this in the same order.
  std::vector<ResourceUsage> gather() const;

 private:
  class Gpu;

  Job& job_;
  std::int64_t begin_ns_;
  ProcessCounters begin_;
  std::unique_ptr<Gpu> gpu_;  // Null if there is none to read.
};

// One line for each rank, with its host. For more than 16 ranks: their least, mean and most.
// It has columns for GPUs if a rank has one.
std::string resource_table(const std::vector<ResourceUsage>& usage, const std::vector<std::string>& hosts);

}  // namespace farandole
