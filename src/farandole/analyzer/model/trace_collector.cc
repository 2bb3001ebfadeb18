#include "farandole/analyzer/model/trace_collector.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <set>
#include <tuple>
#include <utility>

#include "farandole/analyzer/model/launches.h"
#include "farandole/base/text/parse_number.h"

namespace farandole {

void RunNames::adopt(RankModel& rank, const CollectedNames& own) {
  std::vector<std::uint32_t> texts, communicators;
  for (const auto& text : own.texts) {
    const auto [found, is_new] = texts_.try_emplace(text, static_cast<std::uint32_t>(run_.names.size()));
    if (is_new) run_.names.push_back(text);
    texts.push_back(found->second);
  }
  for (const auto& name : own.communicators)
    communicators.push_back(
        communicators_.try_emplace(name, static_cast<std::uint32_t>(communicators_.size())).first->second);
  auto collectives = rank.collectives();  // Before the rank is shifted.
  PackedCollectives packed;
  for (auto& span : collectives) {
    span.name = texts[span.name];
    span.operation = texts[span.operation];
    if (span.what.communicator < communicators.size()) {
      const auto communicator = communicators[span.what.communicator];
      span.matchable = span.matchable && communicator <= UINT16_MAX;
      span.what.communicator = static_cast<std::uint16_t>(communicator);
    }
    packed.append(span);
  }
  rank.packed_collectives.assign(1, std::move(packed));
  for (auto& [device, work] : rank.packed_gpu) {
    std::vector<NamedSpan> spans;
    std::exchange(work, {}).unpack(spans);
    for (auto& span : spans) {
      span.name = texts[span.name];
      if (span.range != NamedSpan::no_range) span.range = texts[span.range];
      work.append(span);
    }
    work.shrink();
  }
}
namespace {

constexpr std::size_t max_open = 10'000;

struct ForeignMeaning {
  Category category = Category::other;
  std::optional<std::int64_t> step = std::nullopt;
  bool is_operator = false;         // The category counts only if no other phase encloses the span.
  std::string_view operation = {};  // Operation of a collective that a host thread executes: "all_reduce".
};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::optional<std::int64_t> number_behind(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  return parse_number<std::int64_t>(text.substr(prefix.size()));
}

// Threads of these libraries execute collectives. For NCCL, such an annotation is only the launch.
std::string_view operation_on_host(std::string_view name) {
  for (const std::string_view library : {"gloo:", "mpi:", "ucc:"})
    if (name.starts_with(library)) return name.substr(library.size());
  return "";
}

// Operators of autograd belong to backward, and so does DDP's work after the last gradient. Other operators
// outside backward, optimizer and data loader belong to the model and its loss.
ForeignMeaning meaning_of_operator(std::string_view name) {
  if (name.starts_with("autograd::engine::evaluate_function: ") ||
      name.starts_with("torch.distributed.ddp.reducer::"))
    return {.category = Category::backward};
  if (name.starts_with("aten::")) return {.category = Category::forward, .is_operator = true};
  return {};
}

// Annotations that PyTorch itself writes, and common annotations of its users.
Category phase_of_annotation(std::string_view name) {
  if (name.starts_with("Optimizer.")) return Category::optimizer;
  if (name.starts_with("enumerate(DataLoader)")) return Category::data;
  if (name == "DistributedDataParallel.forward" || name == "forward" || name == "## forward ##")
    return Category::forward;
  if (name == "backward" || name == "## backward ##") return Category::backward;
  if (name == "optimizer" || name == "## optimizer ##") return Category::optimizer;
  return Category::other;
}

template <std::size_t n>
bool is_one_of(std::string_view text, const std::array<std::string_view, n>& all) {
  return std::find(all.begin(), all.end(), text) != all.end();
}

// Calls of the runtime or driver of an accelerator: "cuda_runtime", "xpu_runtime", "Runtime" of PyTorch 1.8.
bool is_runtime(std::string_view category) {
  return category.ends_with("_runtime") || category.ends_with("_driver") || category == "Runtime";
}

// Our own track of the ranges that a program marks by NVTX.
constexpr std::string_view track_of_ranges = "NVTX";
// Modules of PyTorch among the functions of Python, which are not read.
constexpr std::string_view module_prefix = "nn.Module: ";
// What programs name themselves; those of Nsight Systems are of category "nvtx".
constexpr std::array<std::string_view, 3> categories_of_ranges = {"user_annotation", "python_function",
                                                                  "nvtx"};

// Returns true for events that repeat other events.
bool is_ignored(std::string_view category) {
  static constexpr std::array<std::string_view, 7> ignored = {"gpu_user_annotation",
                                                              "python_function",
                                                              "cuda_sync",
                                                              "cuda_event",
                                                              "overhead",
                                                              "mtia_insight",
                                                              "Trace"};
  return is_one_of(category, ignored);
}

bool is_of_kineto(std::string_view category) {
  static constexpr std::array<std::string_view, 17> known = {
      "cpu_op",   "user_annotation", "gpu_user_annotation",
      "kernel",   "gpu_memcpy",      "gpu_memset",
      "ac2g",     "python_function", "fwdbwd",
      "Operator", "Kernel",          "Memcpy",
      "Memset",   "cuda_sync",       "cpu_instant_event",
      "hpu_op",   "mtia_ccp_events"};
  return is_one_of(category, known) || is_runtime(category);
}

// Whether the host gave work to an accelerator in this call. A profiler itself waits for devices, even if the
// program does not use them.
bool is_launch(std::string_view name) {
  return contains(name, "aunch") || contains(name, "emcpy") || contains(name, "emset");
}
bool is_of_device(std::string_view operator_name) {
  static constexpr std::array<std::string_view, 7> prefixes = {
      "nccl:", "rccl:", "hccl:", "xccl:", "aten::cudnn_", "aten::_cudnn", "aten::miopen_"};
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return operator_name.starts_with(prefix); });
}

// Work of an accelerator: kernels, or copies. Devices other than GPUs have categories of their own
// ("mtia_ccp_events"), but only work of a device has a stream.
std::optional<Category> device_work(const TraceSpan& span) {
  const auto category = span.category_text;
  if (category == "kernel" || category == "Kernel") return Category::gpu_kernel;
  if (contains(category, "memcpy") || contains(category, "Memcpy") || contains(category, "memset") ||
      contains(category, "Memset"))
    return Category::gpu_memcpy;
  if (contains(category, "kernel")) return Category::gpu_kernel;
  if (!span.message.stream && category != "mtia_ccp_events") return std::nullopt;
  const bool copies = !span.message.direction.empty() || span.name.starts_with("dma") ||
                      contains(span.name, "memcpy") || contains(span.name, "Memcpy");
  return copies ? Category::gpu_memcpy : Category::gpu_kernel;
}

// Maps a span whose category is not one of Farandole's, such as those of PyTorch's profiler: kernels, copies,
// operators, ProfilerStep#, its annotations, Gloo's collectives.
ForeignMeaning meaning_of(const TraceSpan& span, bool is_operator) {
  if (!is_operator && span.category_text != "user_annotation")
    if (const auto work = device_work(span)) return {.category = *work};
  if (const auto operation = operation_on_host(span.name); !operation.empty())
    return {.category = Category::communication, .operation = operation};
  if (const auto step = number_behind(span.name, "ProfilerStep#"))
    return {.category = Category::step, .step = step};
  if (const auto phase = phase_of_annotation(span.name); phase != Category::other) return {.category = phase};
  return is_operator ? meaning_of_operator(span.name) : ForeignMeaning{};
}

// Begins of spans that Horovod writes. With its cache of responses, most operations are not negotiated.
bool is_of_horovod(std::string_view name) {
  static constexpr std::array<std::string_view, 6> known = {"ALLREDUCE", "ALLGATHER",     "BROADCAST",
                                                            "ALLTOALL",  "REDUCESCATTER", "ADASUM"};
  return name.starts_with("NEGOTIATE_") || is_one_of(name, known);
}

// Returns whether the name is that of a kernel of NCCL, RCCL or MSCCL, or of our own for ranks that
// share a GPU.
bool is_collective_kernel(std::string_view name) {
  return name.starts_with("nccl") || name.starts_with("farandole_reduce_peers") ||
         name.starts_with("farandole_copy_from_peers") || contains(name, "ncclKernel") ||
         contains(name, "ncclDevKernel") || contains(name, "rcclKernel") || contains(name, "mscclKernel");
}

// ROCm copies and fills memory by kernels of its own, and its profiler labels other copies as kernels, too.
bool is_copy(std::string_view name) {
  static constexpr std::array<std::string_view, 10> copies = {
      "__amd_rocclr_copy", "__amd_rocclr_fill", "Memcpy",       "Memset",    "CopyHostTo",
      "CopyDeviceTo",      "FillBuffer",        "MEMORY_COPY_", "hipMemcpy", "hipMemset"};
  return std::any_of(copies.begin(), copies.end(), [&](auto copy) { return name.starts_with(copy); });
}

// Returns "allreduce", "allgather", … from the name of a kernel; "" if the name does not contain it.
std::string_view operation_of_kernel(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 9> operations = {
      {{"AllReduce", "allreduce"},
       {"farandole_reduce_peers",
        "allreduce"},  // of buckets; nothing else that it can do is used in training
       {"farandole_copy_from_peers", "alltoall"},
       {"AllGather", "allgather"},
       {"ReduceScatter", "reducescatter"},
       {"Broadcast", "broadcast"},
       {"SendRecv", "sendrecv"},
       {"AllToAll", "alltoall"},
       {"Reduce", "reduce"}}};
  for (const auto& [part, operation] : operations)
    if (contains(name, part)) return operation;
  return "";
}

// `dtype` is PyTorch's name of an element type. Returns 0 if it is unknown.
std::uint64_t bytes_of_dtype(std::string_view dtype) {
  struct DtypeSize {
    std::uint64_t bytes;
    std::string_view names;  // Names in c10d and in the profiler's "Input type".
  };
  static constexpr std::array<DtypeSize, 4> sizes = {
      {{1, " Byte Char Bool Float8_e4m3fn Float8_e5m2 unsigned_char signed_char bool "},
       {2, " Half BFloat16 Short c10::Half c10::BFloat16 short "},
       {4, " Float Int float int "},
       {8, " Double Long ComplexFloat double long long_int c10::complex<float> "}}};
  std::string word = " ";
  for (const char c : dtype) word += c == ' ' ? '_' : c;
  word += ' ';
  for (const auto& [bytes, names] : sizes)
    if (contains(names, word)) return bytes;
  return 0;
}

void include(Interval& extent, std::int64_t start, std::int64_t end) {
  extent.start = std::min(extent.start, start);
  extent.end = std::max(extent.end, end);
}

// Returns the thread named "training". Without one, it is the thread with the most step spans, then
// with the most spans.
CollectedThread* training_thread(std::map<std::int64_t, CollectedThread>& threads) {
  CollectedThread* best = nullptr;
  const auto weight = [](const CollectedThread& thread) {
    return std::tuple(thread.name == "training", thread.steps.size(),
                      thread.spans.seen() + thread.operators.seen());
  };
  for (auto& [tid, thread] : threads)
    if (best == nullptr || weight(thread) > weight(*best)) best = &thread;
  return best;
}

// Orders the steps by number. Of a step that was repeated after a restart, the last is kept.
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

// Other profilers may not number collectives (`sequence` is then `no_sequence`), and a replayed CUDA graph
// has the same numbers again. In a process group with such collectives, all are counted. Returns whether
// none was counted.
constexpr std::uint32_t no_sequence = UINT32_MAX;
bool number(const std::map<std::int64_t, CollectedThread>& threads, PackedCollectives& packed) {
  std::vector<CollectiveSpan> spans;
  for (const auto& [tid, thread] : threads) thread.unnumbered.unpack(spans);
  std::stable_sort(spans.begin(), spans.end(), [](const CollectiveSpan& a, const CollectiveSpan& b) {
    return std::tuple(a.start, a.end, a.what.bytes) < std::tuple(b.start, b.end, b.what.bytes);
  });
  std::map<std::uint16_t, std::uint32_t> next;  // Of groups that are counted.
  std::set<std::pair<std::uint16_t, std::uint32_t>> known;
  for (const auto& span : spans)
    if (span.matchable && (span.what.sequence == no_sequence ||
                           !known.emplace(span.what.communicator, span.what.sequence).second))
      next[span.what.communicator] = 0;
  for (auto& span : spans) {
    if (const auto counted = next.find(span.what.communicator); span.matchable && counted != next.end())
      span.what.sequence = counted->second++;
    packed.append(span);
  }
  return next.empty() && !spans.empty();
}

// Operators are a phase where no phase covers them, also if an annotation does.
void add_operators(const ThreadSpans& operators, PackedSpans& training) {
  std::vector<CategorySpan> spans, own;
  operators.kept().unpack(own);
  if (own.empty()) return;
  training.unpack(spans);
  for (const auto& span : own) spans.push_back({span.start, span.end, Category::other});
  const auto gaps = intervals_of(innermost(std::move(spans)), Category::other);
  const auto category = own.front().category;
  const auto times = intersect(intervals_of(own, category), gaps);
  for (const auto& time : times.intervals()) training.append({time.start, time.end, category});
}

}  // namespace

bool CollectedThread::has_spans() const {
  return spans.seen() > 0 || operators.seen() > 0 || gpu.size() > 0;
}

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

// Names of kernels are long, and the same few come again and again. Therefore a known one is found by parts
// of its text, and compared. The number of different names is limited.
std::uint32_t TraceCollector::frequent_name_id(std::string_view text) {
  constexpr std::size_t most_names = 1 << 16;
  constexpr std::uint64_t factor = 0x9E3779B97F4A7C15u;
  std::uint64_t hash = text.size();
  if (text.size() >= 8)
    for (std::size_t part = 0; part < 5; ++part) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data() + part * (text.size() - 8) / 4, sizeof word);
      hash = (hash ^ word) * factor;
      hash ^= hash >> 29;
    }
  auto& known = frequent_[hash * factor >> 52];
  if (known < texts_.size() && texts_[known] == text) return known;
  return known = name_id(texts_.size() < most_names ? text : std::string_view("names beyond 65,536"));
}

// The same few categories come again and again.
const TraceCollector::CategoryKind& TraceCollector::kind_of_category(std::string_view text) {
  auto& kind =
      category_kinds_[text.empty() ? 0 : (7 * text.size() + static_cast<unsigned char>(text[0])) % 64];
  if (kind.is_known && kind.text == text) return kind;
  const bool is_runtime = farandole::is_runtime(text);
  kind = {.is_known = true,
          .is_range = is_one_of(text, categories_of_ranges),
          .is_runtime = is_runtime,
          .is_ignored = is_runtime || farandole::is_ignored(text),
          .is_operator = text == "cpu_op" || text == "Operator",  // of PyTorch up to 1.11
          .text = std::string(text)};
  return kind;
}

TraceCollector::KernelKind TraceCollector::kind_of_kernel(std::uint32_t name) {
  if (kernel_kinds_.size() <= name) kernel_kinds_.resize(texts_.size());
  auto& kind = kernel_kinds_[name];
  if (kind == KernelKind::unknown)
    kind = is_copy(texts_[name])                ? KernelKind::copy
           : is_collective_kernel(texts_[name]) ? KernelKind::collective
                                                : KernelKind::compute;
  return kind;
}

// Communicators are identified by name, so that groups that the trace separates are also separate here.
std::uint32_t TraceCollector::communicator_id(const std::string& name) {
  const auto [found, is_new] =
      communicators_.try_emplace(name, static_cast<std::uint32_t>(communicator_names_.size()));
  if (is_new) communicator_names_.push_back(name);
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

bool TraceCollector::wants(std::string_view category) {
  origin_.is_kineto |= is_of_kineto(category);
  return !is_ignored(category) || !wanted_prefix(category).empty();
}

std::string_view TraceCollector::wanted_prefix(std::string_view category) {
  return category == "python_function" ? module_prefix : "";
}

bool TraceCollector::is_uncertain() const {
  return std::any_of(processes_.begin(), processes_.end(), [](const auto& process) {
    return std::any_of(process.second.threads.begin(), process.second.threads.end(),
                       [](const auto& thread) { return thread.second.spans.is_uncertain(); });
  });
}

void TraceCollector::process(const TraceProcess& event) {
  auto& process = processes_[event.pid];
  process.name = event.name;
  process.host = event.host;
  process.rank = event.rank;
  // The timelines of TensorFlow 1 have "/device:GPU:0/stream:all Compute".
  origin_.is_xla |=
      event.name == "/host:CPU" || (event.name.starts_with("/device:") && !contains(event.name, " "));
}

void TraceCollector::thread(const TraceThread& event) {
  thread_of(event.pid, event.tid).name = event.name;
}

void TraceCollector::begin(const TraceSpan& event) {
  origin_.is_horovod |= event.category_text.empty() && is_of_horovod(event.name);
  auto& thread = thread_of(event.pid, event.tid);
  if (thread.open.size() >= max_open) return;
  thread.open.push_back(event);
  thread.open_names.push_back(name_id(event.name));
  thread.open_names.push_back(name_id(event.category_text));
}

void TraceCollector::end(std::int64_t pid, std::int64_t tid, std::int64_t time_ns) {
  auto& thread = thread_of(pid, tid);
  if (thread.open.empty()) return;
  auto event = thread.open.back();
  thread.open.pop_back();
  const auto category = texts_[thread.open_names.back()];
  thread.open_names.pop_back();
  const auto name = texts_[thread.open_names.back()];
  thread.open_names.pop_back();
  event.name = name;
  event.category_text = category;
  event.operation = {};
  event.message = {};
  event.duration_ns = std::max<std::int64_t>(0, time_ns - event.start_ns);
  span(event);
}

void TraceCollector::gpu_span(const TraceSpan& event, CollectedThread& thread) {
  // CUPTI writes 0 if the device did not report the times.
  if (event.start_ns <= 0 && event.duration_ns == 0) {
    ++origin_.untimed;
    return;
  }
  const auto end = event.start_ns + event.duration_ns;
  const auto name = frequent_name_id(event.name);
  const auto kind = kind_of_kernel(name);
  const auto category = kind == KernelKind::copy ? Category::gpu_memcpy : event.category;
  const bool collective = category == Category::gpu_kernel &&
                          (kind == KernelKind::collective || !event.message.collective.empty() ||
                           !event.operation.empty() || event.collective);
  NamedSpan span{.start = event.start_ns, .end = end, .bytes = event.bytes, .name = name};
  span.category = collective ? Category::communication : category;
  if (event.phase) span.phase = static_cast<std::uint8_t>(phase_of(*event.phase));
  if (event.queued_ns > 0) {
    span.launch_is = NamedSpan::Launch::time;
    span.launch = event.start_ns - event.queued_ns;
  } else if (event.correlation) {
    span.launch_is = NamedSpan::Launch::correlation;
    span.launch = static_cast<std::int64_t>(*event.correlation);
  }
  thread.gpu.append(span);
  include(thread.collectives_extent, event.start_ns, end);
  if (!collective || !event.operation.empty() || event.collective) return;
  // This event is from another profiler. It has no sequence number, but the kernels of all ranks
  // have the same order.
  unnumbered_collective(
      event, event.message.collective.empty() ? operation_of_kernel(event.name) : event.message.collective,
      thread);
}

// Threads of the host may execute two collectives at a time, in a different order on each rank. Therefore
// they are distinguished by operation and size.
void TraceCollector::unnumbered_collective(const TraceSpan& event, std::string_view operation,
                                           CollectedThread& thread) {
  const auto& message = event.message;
  Collective what;
  what.bytes = message.elements.value_or(0) * bytes_of_dtype(message.dtype);
  scratch_.assign(message.process_group);
  if (event.category == Category::communication)
    scratch_.append(operation).append(std::to_string(what.bytes));
  else if (operation.starts_with("send") || operation.starts_with("recv"))
    scratch_.append(" send and receive");  // Two ranks take part, and they have numbers of their own.
  const auto sequence = message.sequence.value_or(no_sequence);
  what.sequence = sequence < no_sequence ? static_cast<std::uint32_t>(sequence) : no_sequence;
  const auto communicator = communicator_id(scratch_);
  what.communicator = static_cast<std::uint16_t>(std::min<std::uint32_t>(communicator, UINT16_MAX));
  const auto ranks = std::min<std::uint64_t>(message.ranks.value_or(0), UINT32_MAX);
  const auto name = name_id(operation.empty() ? event.name : operation);
  thread.unnumbered.append({event.start_ns, event.start_ns + event.duration_ns, what,
                            communicator <= UINT16_MAX, name, name_id(operation),
                            static_cast<std::uint32_t>(ranks)});
}

void TraceCollector::instant(const TraceInstant& event) {
  constexpr std::string_view idle_cores = "idle cores ";
  if (event.name.starts_with(idle_cores))
    processes_[event.pid].resources.idle_cores = event.name.substr(idle_cores.size());
}

void TraceCollector::counter(const TraceCounter& event) {
  auto& resources = processes_[event.pid].resources;
  if (event.name == "core wait %") return resources.core_wait.add(event.time_ns, event.value);
  if (event.name == "core" && event.value >= 0 && event.value < 1 << 20)
    resources.cores.insert(static_cast<int>(event.value));
  const auto target = event.name == "CPU %"            ? &ResourceCounters::cpu_percent
                      : event.name == "memory MiB"     ? &ResourceCounters::memory_mib
                      : event.name == "GPU %"          ? &ResourceCounters::gpu_percent
                      : event.name == "GPU memory MiB" ? &ResourceCounters::gpu_memory_mib
                                                       : nullptr;
  if (target == nullptr) return;
  auto& use = resources.*target;
  if (!use) use.emplace();
  use->add(event.time_ns, event.value);
}

// Steps and the launches of collectives say nothing about what a kernel belongs to.
void TraceCollector::range(const TraceSpan& event) {
  if (event.step || event.name.starts_with("ProfilerStep#") || event.name.starts_with("nccl:")) return;
  auto name = event.name;
  if (name.starts_with(module_prefix)) name.remove_prefix(module_prefix.size());
  thread_of(event.pid, event.tid)
      .ranges.append({.start = event.start_ns,
                      .end = event.start_ns + event.duration_ns,
                      .name = frequent_name_id(name)});
}

// Of a GPU's lines, those of streams have its work, and "Steps" has the program's steps. Others repeat that
// work by module and operation. Lines of the host and of TPUs are not read.
void TraceCollector::span_of_xla(const TraceSpan& event) {
  auto& thread = thread_of(event.pid, event.tid);
  if (thread.name == "Steps")
    if (const auto step = parse_number<std::int64_t>(event.name))
      thread.steps.push_back({*step, event.start_ns, event.start_ns + event.duration_ns});
  if (!thread.name.starts_with("Stream #")) return;
  auto work = event;
  work.category = Category::gpu_kernel;
  gpu_span(work, thread);
}

void TraceCollector::span(const TraceSpan& event) {
  if (origin_.is_xla && event.category_text.empty()) return span_of_xla(event);
  if (event.category != Category::other || event.category_text == name_of(Category::other))
    return take(event);
  const auto& kind = kind_of_category(event.category_text);
  if (kind.is_range) range(event);
  const bool launches =
      kind.is_runtime && (event.correlation || !origin_.uses_device) && is_launch(event.name);
  origin_.uses_device = origin_.uses_device || launches || is_of_device(event.name);
  if (launches && event.correlation)
    thread_of(event.pid, event.tid)
        .launches.emplace_back(static_cast<std::int64_t>(*event.correlation), event.start_ns);
  if (kind.is_ignored) return;
  const auto meaning = meaning_of(event, kind.is_operator);
  auto meant = event;
  meant.category = meaning.category;
  if (meaning.step) meant.step = meaning.step;
  auto& thread = thread_of(event.pid, event.tid);
  const CategorySpan as_span{event.start_ns, event.start_ns + event.duration_ns, meaning.category};
  if (meaning.is_operator) {
    thread.operators.add(as_span);
    return include(thread.extent, as_span.start, as_span.end);
  }
  if (meaning.operation.empty()) return take(meant);
  thread.spans.add(as_span, keep_all_);
  include(thread.collectives_extent, as_span.start, as_span.end);
  unnumbered_collective(meant, meaning.operation, thread);
}

void TraceCollector::take(const TraceSpan& event) {
  auto& thread = thread_of(event.pid, event.tid);
  if (event.category == Category::gpu_kernel || event.category == Category::gpu_memcpy)
    return gpu_span(event, thread);
  if (event.category == Category::other && thread.name == track_of_ranges) range(event);
  const auto end = event.start_ns + event.duration_ns;
  thread.spans.add({event.start_ns, end, event.category}, keep_all_);
  include(thread.extent, event.start_ns, end);
  if (event.category == Category::step && event.step)
    thread.steps.push_back({*event.step, event.start_ns, end});
  if (event.category != Category::communication) return;
  include(thread.collectives_extent, event.start_ns, end);
  const bool is_part = !event.collective && event.operation.empty() && !is_mpi_call(event.name);
  (is_part ? thread.parts : thread.collectives)
      .append({event.start_ns, end, event.collective.value_or(Collective{0, 0, event.bytes}),
               event.collective.has_value(), name_id(event.name), name_id(event.operation),
               is_mpi_call(event.name) ? static_cast<std::uint32_t>(std::min<std::uint64_t>(
                                             event.message.ranks.value_or(0), UINT32_MAX))
                                       : 0});
}

RankModel rank_model_of(int rank, CollectedProcess& process) {
  RankModel model;
  model.rank = rank;
  model.host = process.host;
  model.resources = process.resources;
  auto* const training = training_thread(process.threads);
  if (training != nullptr) {
    model.packed_training = training->spans.kept();
    add_operators(training->operators, model.packed_training);
    model.packed_training.shrink();
    model.steps = each_step_once(std::move(training->steps));
    model.extent = training->extent;
  }
  model.packed_gpu = linked_gpu_work(process.threads, training, model.packed_training);
  // A part is a thread's share in a collective that is on a separate track. In traces of other tools, parts
  // may be the only collectives.
  const bool only_parts = std::all_of(process.threads.begin(), process.threads.end(),
                                      [](const auto& entry) { return entry.second.collectives.size() == 0; });
  for (auto& [tid, thread] : process.threads) {
    auto& collectives = only_parts ? thread.parts : thread.collectives;
    collectives.shrink();
    if (collectives.size() > 0) model.packed_collectives.push_back(std::move(collectives));
    include(model.extent, thread.collectives_extent.start, thread.collectives_extent.end);
  }
  if (model.packed_collectives.empty())
    model.has_sequences = number(process.threads, model.packed_collectives.emplace_back());
  process.threads.clear();
  return model;
}

}  // namespace farandole
