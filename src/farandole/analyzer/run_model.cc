#include "farandole/analyzer/run_model.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <tuple>
#include <unordered_map>

#include "farandole/base/error.h"

namespace farandole {
namespace {

// Every text once.
class Names {
 public:
  std::uint32_t id(std::string_view text) {
    scratch_.assign(text);
    const auto [found, inserted] = ids_.try_emplace(scratch_, static_cast<std::uint32_t>(texts_.size()));
    if (inserted) texts_.push_back(scratch_);
    return found->second;
  }
  std::vector<std::string> take() { return std::move(texts_); }

 private:
  std::string scratch_;
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::vector<std::string> texts_;
};

struct Thread {
  std::string name;
  std::vector<CategorySpan> spans;
  std::vector<StepSpan> steps;
  std::vector<CollectiveSpan> collectives;
  std::vector<CollectiveSpan> parts;  // that no collective says of itself
  std::vector<CategorySpan> gpu;
};

struct Process {
  std::string name, host;
  std::optional<std::int64_t> rank;
  std::map<std::int64_t, Thread> threads;
};

// Keeps of each event the few bytes that the metrics use. Metadata may come before or after the spans.
class Collector : public TraceVisitor {
 public:
  void process(const TraceProcess& event) override {
    auto& process = processes_[event.pid];
    process.name = event.name;
    process.host = event.host;
    process.rank = event.rank;
  }

  void thread(const TraceThread& event) override { thread_of(event.pid, event.tid).name = event.name; }

  void span(const TraceSpan& event) override {
    auto& thread = thread_of(event.pid, event.tid);
    const auto end = event.start_ns + event.duration_ns;
    if (event.category == Category::gpu_kernel || event.category == Category::gpu_memcpy) {
      const bool nccl = event.category == Category::gpu_kernel &&
                        (event.name.starts_with("nccl") || !event.operation.empty() || event.collective);
      thread.gpu.push_back({event.start_ns, end, nccl ? Category::communication : event.category});
      return;
    }
    thread.spans.push_back({event.start_ns, end, event.category});
    if (event.category == Category::step && event.step)
      thread.steps.push_back({*event.step, event.start_ns, end});
    if (event.category != Category::communication) return;
    const bool is_part = !event.collective && event.operation.empty();
    (is_part ? thread.parts : thread.collectives)
        .push_back({event.start_ns, end, event.collective.value_or(Collective{}),
                    event.collective.has_value(), names_.id(event.name), names_.id(event.operation)});
  }

  std::map<std::int64_t, Process>& processes() { return processes_; }
  std::vector<std::string> take_names() { return names_.take(); }

 private:
  Thread& thread_of(std::int64_t pid, std::int64_t tid) {
    if (last_ == nullptr || pid != last_pid_ || tid != last_tid_) {
      last_ = &processes_[pid].threads[tid];
      last_pid_ = pid;
      last_tid_ = tid;
    }
    return *last_;
  }

  std::map<std::int64_t, Process> processes_;
  Names names_;
  Thread* last_ = nullptr;
  std::int64_t last_pid_ = 0;
  std::int64_t last_tid_ = 0;
};

// The thread called "training"; in traces without one that with the most step spans, then with the most
// spans.
Thread* training_thread(std::map<std::int64_t, Thread>& threads) {
  Thread* best = nullptr;
  const auto weight = [](const Thread& thread) {
    return std::tuple(thread.name == "training", thread.steps.size(), thread.spans.size());
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

template <class T>
void move_to(std::vector<T>& source, std::vector<T>& target) {
  if (target.empty())
    target = std::move(source);
  else
    target.insert(target.end(), source.begin(), source.end());
  source = {};
}

RankModel rank_model(int rank, Process& process) {
  RankModel model;
  model.rank = rank;
  model.host = process.host;
  if (auto* training = training_thread(process.threads)) {
    model.training = std::move(training->spans);
    model.steps = each_step_once(std::move(training->steps));
  }
  std::vector<CollectiveSpan> parts;
  for (auto& [tid, thread] : process.threads) {
    move_to(thread.collectives, model.collectives);
    move_to(thread.parts, parts);
    move_to(thread.gpu, model.gpu);
  }
  // A thread's part in collectives that lie on a track of their own; in other tools' traces, all there is.
  if (model.collectives.empty()) model.collectives = std::move(parts);
  std::sort(model.collectives.begin(), model.collectives.end(),
            [](const CollectiveSpan& a, const CollectiveSpan& b) { return a.start < b.start; });
  return model;
}

bool has_spans(const Process& process) {
  return std::any_of(process.threads.begin(), process.threads.end(), [](const auto& entry) {
    return !entry.second.spans.empty() || !entry.second.gpu.empty();
  });
}

void add_ranks(RunModel& model, std::map<std::int64_t, Process>& processes) {
  const bool named =
      std::any_of(processes.begin(), processes.end(), [](const auto& p) { return p.second.rank; });
  if (!named)
    model.warnings.push_back("no process of the trace says which rank it is: they are counted by their pid");
  std::map<std::int64_t, std::int64_t> pid_of_rank;
  std::int64_t next = 0;
  for (auto& [pid, process] : processes) {
    if (!has_spans(process)) continue;
    if (!named) process.rank = next++;
    if (!process.rank || *process.rank < 0 || *process.rank > INT32_MAX) {
      model.warnings.push_back(
          fmt::format("process {} of the trace is no rank: its events are left out", pid));
      continue;
    }
    const auto [first, is_new] = pid_of_rank.try_emplace(*process.rank, pid);
    if (!is_new) {
      model.warnings.push_back(fmt::format(
          "rank {} is there twice (processes {} and {}): two runs in one trace? The second is left out",
          *process.rank, first->second, pid));
      continue;
    }
    model.ranks.push_back(rank_model(static_cast<int>(*process.rank), process));
  }
  std::sort(model.ranks.begin(), model.ranks.end(),
            [](const RankModel& a, const RankModel& b) { return a.rank < b.rank; });
}

std::string list_of(const std::vector<std::int64_t>& ranks) {
  const std::size_t shown = std::min<std::size_t>(ranks.size(), 8);
  const std::vector<std::int64_t> first(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(shown));
  return fmt::format("rank{} {}{}", ranks.size() == 1 ? "" : "s", fmt::join(first, ", "),
                     ranks.size() > shown ? fmt::format(" and {} more", ranks.size() - shown) : "");
}

void name_missing_and_foreign_ranks(RunModel& model) {
  const auto expected = model.facts.ranks ? model.facts.ranks : model.header.ranks;
  if (!expected) return;
  if (model.facts.ranks && model.header.ranks && *model.facts.ranks != *model.header.ranks)
    model.warnings.push_back(
        fmt::format("run.json says {} ranks, the trace says {}: are both of the same run?",
                    *model.facts.ranks, *model.header.ranks));
  std::vector<std::int64_t> missing, foreign;
  std::int64_t next = 0;
  for (const auto& rank : model.ranks) {
    for (; next < std::min<std::int64_t>(rank.rank, *expected) && missing.size() < 100'000; ++next)
      missing.push_back(next);
    next = std::max<std::int64_t>(next, rank.rank + std::int64_t{1});
    if (rank.rank >= *expected) foreign.push_back(rank.rank);
  }
  for (; next < *expected && missing.size() < 100'000; ++next) missing.push_back(next);
  if (!missing.empty())
    model.warnings.push_back(fmt::format("the trace has nothing of {} (of {})", list_of(missing), *expected));
  if (!foreign.empty())
    model.warnings.push_back(fmt::format("the trace has {}, but the run has only {}: two runs mixed up?",
                                         list_of(foreign), *expected));
}

void settle_hosts(RunModel& model) {
  for (auto& rank : model.ranks) {
    const auto index = static_cast<std::size_t>(rank.rank);
    if (index >= model.facts.hosts.size()) continue;
    const auto& host = model.facts.hosts[index];
    if (rank.host.empty())
      rank.host = host;
    else if (rank.host != host && !host.empty())
      model.warnings.push_back(
          fmt::format("rank {} ran on {} by the trace, on {} by run.json: two runs mixed up?", rank.rank,
                      rank.host, host));
  }
}

struct RunFiles {
  std::filesystem::path trace, run_json;
};

RunFiles find_files(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    throw UserError(path.string() + " does not exist; give a run directory or a Chrome trace");
  if (!fs::is_directory(path, ignored)) return {path, path.parent_path() / "run.json"};
  for (const auto* name : {"timeline.json.gz", "timeline.json"})
    if (fs::exists(path / name, ignored)) return {path / name, path / "run.json"};
  throw UserError(path.string() +
                  " has no timeline.json.gz: was it recorded with --timeline off, or has the run not ended? "
                  "`farandole timeline merge` makes one from its recorder folder");
}

}  // namespace

RunModel read_run(const std::filesystem::path& path) {
  const auto files = find_files(path);
  RunModel model;
  model.path = path;
  model.facts = read_run_facts(files.run_json);
  model.warnings = model.facts.warnings;
  Collector collector;
  auto summary = read_trace(files.trace, collector);
  model.header = std::move(summary.header);
  model.events = summary.events;
  model.bytes = summary.bytes;
  move_to(summary.warnings, model.warnings);
  model.names = collector.take_names();
  add_ranks(model, collector.processes());
  if (model.ranks.empty())
    throw CorruptInput("trace " + files.trace.string() + " holds no spans of any rank");
  name_missing_and_foreign_ranks(model);
  settle_hosts(model);
  return model;
}

}  // namespace farandole
