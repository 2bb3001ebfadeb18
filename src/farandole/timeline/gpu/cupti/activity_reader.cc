#include "farandole/timeline/gpu/cupti/activity_reader.h"

#include <algorithm>
#include <cstdlib>
#include <cxxabi.h>
#include <iterator>
#include <memory>

namespace farandole {
namespace {

std::string_view copy_name(std::uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "copy host to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "copy device to host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return "copy on the device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return "copy device to device";
    default:
      return "copy";
  }
}

const WaitingCall* waiting_call(const CUpti_ActivityAPI& call) {
  const auto* const found = std::ranges::find_if(waiting_calls, [&](const WaitingCall& waiting) {
    return waiting.id == call.cbid && waiting.of_driver == (call.kind == CUPTI_ACTIVITY_KIND_DRIVER);
  });
  return found == std::end(waiting_calls) ? nullptr : found;
}

// Demangles and shortens a name: "void at::native::gemm<float>(float*)" becomes "at::native::gemm<float>".
std::string readable(const char* mangled) {
  std::string name = mangled;
  if (!name.starts_with("_Z")) return name;
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(mangled, nullptr, nullptr, &status), &std::free);
  if (status == 0) name = demangled.get();
  if (name.starts_with("void ")) name.erase(0, 5);
  int depth = 0;  // depth of template arguments, which may contain parentheses
  for (std::size_t i = 0; i < name.size(); ++i) {
    depth += name[i] == '<' ? 1 : name[i] == '>' ? -1 : 0;
    if (name[i] == '(' && depth == 0 && !name.substr(i).starts_with("(anonymous namespace)"))
      return name.substr(0, i);
  }
  return name;
}

}  // namespace

NameId ActivityReader::name(std::string_view text) {
  const auto [found, fresh] = names_.try_emplace(std::string(text));
  if (!fresh) return found->second;
  const auto name = readable(found->first.c_str());
  found->second = timeline_.intern(name);
  // The latter is that of ranks that share a GPU.
  if ((name.starts_with("nccl") || name == "farandole_reduce_peers") && name.find('(') == std::string::npos)
    kernels_of_collectives_[found->second.value] = name;
  return found->second;
}

NameId ActivityReader::name_of_work(const Work& work, std::int64_t launch_ns) {
  const auto kernel = kernels_of_collectives_.find(work.name.value);
  if (kernel == kernels_of_collectives_.end()) return work.name;
  const auto collective = collectives_.at(launch_ns);
  return collective ? name(kernel->second + "(" + *collective + ")") : work.name;
}

TrackId ActivityReader::track(const std::string& label) {
  const auto [found, fresh] = tracks_.try_emplace(label);
  if (fresh) found->second = timeline_.add_track(label);
  return found->second;
}

TrackId ActivityReader::stream(std::uint32_t device, std::uint32_t number) {
  return track("GPU " + std::to_string(device) + " stream " + std::to_string(number));
}

void ActivityReader::record(const Work& work, std::int64_t launch_ns) {
  timeline_.span_on(work.track, work.category, name_of_work(work, launch_ns), history_.place_at(launch_ns),
                    work.start_ns, work.end_ns, launch_ns, work.bytes);
}

template <class Record>
void ActivityReader::work(const Record& record_of_gpu, Category category, std::string_view label,
                          std::uint64_t bytes) {
  if (record_of_gpu.end == 0) return;  // the device could not measure the time, or it has not ended
  const Work work{category,
                  name(label),
                  stream(record_of_gpu.deviceId, record_of_gpu.streamId),
                  static_cast<std::int64_t>(record_of_gpu.start),
                  static_cast<std::int64_t>(record_of_gpu.end),
                  bytes};
  const auto launch = launches_.find(record_of_gpu.correlationId);
  // Kept, because one launch of a graph has several pieces of work.
  if (launch != launches_.end()) return record(work, launch->second);
  waiting_.emplace(record_of_gpu.correlationId, work);
  if (waiting_.size() > most_waiting) finish();
}

void ActivityReader::launched(std::uint32_t correlation, std::int64_t at_ns) {
  const auto [first, last] = waiting_.equal_range(correlation);
  for (auto it = first; it != last; ++it) record(it->second, at_ns);
  waiting_.erase(first, last);
  if (launches_.insert_or_assign(correlation, at_ns).second) order_of_launches_.push_back(correlation);
  if (launches_.size() <= most_waiting) return;
  launches_.erase(order_of_launches_.front());
  order_of_launches_.pop_front();
}

void ActivityReader::finish() {
  for (const auto& [correlation, work] : waiting_) record(work, work.start_ns);
  waiting_.clear();
}

void ActivityReader::read(const CUpti_Activity& activity) {
  switch (activity.kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& kernel = reinterpret_cast<const CUpti_ActivityKernel10&>(activity);
      return work(kernel, Category::gpu_kernel, kernel.name != nullptr ? kernel.name : "kernel");
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& copy = reinterpret_cast<const CUpti_ActivityMemcpy6&>(activity);
      return work(copy, Category::gpu_memcpy, copy_name(copy.copyKind), copy.bytes);
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY2: {
      const auto& copy = reinterpret_cast<const CUpti_ActivityMemcpyPtoP4&>(activity);
      return work(copy, Category::gpu_memcpy, copy_name(copy.copyKind), copy.bytes);
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto& set = reinterpret_cast<const CUpti_ActivityMemset4&>(activity);
      return work(set, Category::gpu_memcpy, "set memory", set.bytes);
    }
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER: {
      const auto& call = reinterpret_cast<const CUpti_ActivityAPI&>(activity);
      const auto start_ns = static_cast<std::int64_t>(call.start),
                 end_ns = static_cast<std::int64_t>(call.end);
      const auto* const waiting = waiting_call(call);
      if (waiting == nullptr) return launched(call.correlationId, start_ns);
      return record({Category::wait, name(waiting->name), track("GPU synchronisation"), start_ns, end_ns},
                    start_ns);
    }
    case CUPTI_ACTIVITY_KIND_MARKER:
      return annotation(reinterpret_cast<const CUpti_ActivityMarker2&>(activity));
    default:
      return;
  }
}

// An NVTX range consists of two markers with the same id. The first one has the name.
void ActivityReader::annotation(const CUpti_ActivityMarker2& marker) {
  const auto at_ns = static_cast<std::int64_t>(marker.timestamp);
  if ((marker.flags & CUPTI_ACTIVITY_FLAG_MARKER_START) != 0) {
    ranges_[marker.id] = {name(marker.name != nullptr ? marker.name : "range"), at_ns};
    if (ranges_.size() > most_waiting) ranges_.erase(ranges_.begin());
  }
  const auto range = ranges_.find(marker.id);
  if ((marker.flags & CUPTI_ACTIVITY_FLAG_MARKER_END) == 0 || range == ranges_.end()) return;
  const auto [label, start_ns] = range->second;
  record({Category::other, label, track("NVTX"), start_ns, at_ns}, start_ns);
  ranges_.erase(range);
}

}  // namespace farandole
