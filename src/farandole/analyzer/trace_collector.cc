#include "farandole/analyzer/trace_collector.h"

#include <algorithm>
#include <tuple>

namespace farandole {
namespace {

void include(Interval& extent, std::int64_t start, std::int64_t end) {
  extent.start = std::min(extent.start, start);
  extent.end = std::max(extent.end, end);
}

// The thread called "training"; in traces without one that with the most step spans, then with the most
// spans.
CollectedThread* training_thread(std::map<std::int64_t, CollectedThread>& threads) {
  CollectedThread* best = nullptr;
  const auto weight = [](const CollectedThread& thread) {
    return std::tuple(thread.name == "training", thread.steps.size(), thread.spans.seen());
  };
  for (auto& [tid, thread] : threads)
    if (best == nullptr || weight(thread) > weight(*best)) best = &thread;
  return best;
}

// By number; of a step that was repeated after a restart, the last.
std::vector<StepSpan> each_step_once(std::vector<StepSpan> steps) {
  std::sort(steps.begin(), steps.end(), [](const StepSpan& a, const StepSpan& b) {
    return std::pair(a.number, a.start) < std::pair(b.number, b.start);
  });
  std::vector<StepSpan> once;
  for (const auto& step : steps) {
    if (!once.empty() && once.back().number == step.number)
      once.back() = step;
    else
      once.push_back(step);
  }
  return once;
}

}  // namespace

bool CollectedProcess::has_spans() const {
  return std::any_of(threads.begin(), threads.end(),
                     [](const auto& entry) { return entry.second.has_spans(); });
}

std::uint32_t TraceCollector::name_id(std::string_view text) {
  scratch_.assign(text);
  const auto [found, inserted] = ids_.try_emplace(scratch_, static_cast<std::uint32_t>(texts_.size()));
  if (inserted) texts_.push_back(scratch_);
  return found->second;
}

CollectedThread& TraceCollector::thread_of(std::int64_t pid, std::int64_t tid) {
  if (last_ == nullptr || pid != last_pid_ || tid != last_tid_) {
    last_ = &processes_[pid].threads[tid];
    last_pid_ = pid;
    last_tid_ = tid;
  }
  return *last_;
}

void TraceCollector::process(const TraceProcess& event) {
  auto& process = processes_[event.pid];
  process.name = event.name;
  process.host = event.host;
  process.rank = event.rank;
}

void TraceCollector::thread(const TraceThread& event) {
  thread_of(event.pid, event.tid).name = event.name;
}

void TraceCollector::span(const TraceSpan& event) {
  auto& thread = thread_of(event.pid, event.tid);
  const auto end = event.start_ns + event.duration_ns;
  if (event.category == Category::gpu_kernel || event.category == Category::gpu_memcpy) {
    const bool nccl = event.category == Category::gpu_kernel &&
                      (event.name.starts_with("nccl") || !event.operation.empty() || event.collective);
    thread.gpu.append({event.start_ns, end, nccl ? Category::communication : event.category});
    include(thread.collectives_extent, event.start_ns, end);
    return;
  }
  thread.spans.add({event.start_ns, end, event.category});
  include(thread.extent, event.start_ns, end);
  if (event.category == Category::step && event.step)
    thread.steps.push_back({*event.step, event.start_ns, end});
  if (event.category != Category::communication) return;
  include(thread.collectives_extent, event.start_ns, end);
  const bool is_part = !event.collective && event.operation.empty();
  (is_part ? thread.parts : thread.collectives)
      .append({event.start_ns, end, event.collective.value_or(Collective{}), event.collective.has_value(),
               name_id(event.name), name_id(event.operation)});
}

RankModel rank_model_of(int rank, CollectedProcess& process) {
  RankModel model;
  model.rank = rank;
  model.host = process.host;
  if (auto* training = training_thread(process.threads)) {
    model.packed_training = training->spans.kept();
    model.packed_training.shrink();
    model.steps = each_step_once(std::move(training->steps));
    model.extent = training->extent;
  }
  // A thread's part in collectives that lie on a track of their own; in other tools' traces, all there is.
  const bool only_parts = std::all_of(process.threads.begin(), process.threads.end(),
                                      [](const auto& entry) { return entry.second.collectives.size() == 0; });
  for (auto& [tid, thread] : process.threads) {
    auto& collectives = only_parts ? thread.parts : thread.collectives;
    collectives.shrink();
    thread.gpu.shrink();
    if (collectives.size() > 0) model.packed_collectives.push_back(std::move(collectives));
    if (thread.gpu.size() > 0) model.packed_gpu.push_back(std::move(thread.gpu));
    include(model.extent, thread.collectives_extent.start, thread.collectives_extent.end);
  }
  process.threads.clear();
  return model;
}

std::vector<CategorySpan> RankModel::training() const {
  std::vector<CategorySpan> spans;
  packed_training.unpack(spans);
  return spans;
}

std::vector<CollectiveSpan> RankModel::collectives() const {
  std::vector<CollectiveSpan> spans;
  for (const auto& packed : packed_collectives) packed.unpack(spans);
  const auto by_start = [](const CollectiveSpan& a, const CollectiveSpan& b) { return a.start < b.start; };
  if (!std::is_sorted(spans.begin(), spans.end(), by_start))
    std::stable_sort(spans.begin(), spans.end(), by_start);
  return spans;
}

std::vector<CategorySpan> RankModel::gpu() const {
  std::vector<CategorySpan> spans;
  for (const auto& packed : packed_gpu) packed.unpack(spans);
  return spans;
}

}  // namespace farandole
