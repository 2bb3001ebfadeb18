#include <algorithm>
#include <array>
#include <cctype>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "farandole/analyzer/formats/readers.h"
#include "farandole/base/error.h"
#include "farandole/base/text/parse_number.h"

namespace farandole {
namespace {

constexpr int max_ranks = 1 << 20;

std::optional<int> rank_of(std::string_view name) {
  const auto rank = parse_number<int>(name);
  return rank && *rank >= 0 && *rank < max_ranks ? rank : std::nullopt;
}

// The operation of "NEGOTIATE_ALLREDUCE" is "allreduce".
std::string operation_of(std::string_view name) {
  std::string operation;
  for (const char c : name.substr(name.find('_') + 1))
    if (c != '_') operation += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return operation;
}

// Returns whether this phase of an operation uses the network: "NCCL_ALLREDUCE", "MPI_CROSS_ALLREDUCE".
bool is_transfer(std::string_view name) {
  static constexpr std::array<std::string_view, 6> libraries = {"NCCL_", "MPI_",    "GLOO_",
                                                                "CCL_",  "ONECCL_", "DDL_"};
  return std::any_of(libraries.begin(), libraries.end(),
                     [&](std::string_view library) { return name.starts_with(library); });
}

// In a Horovod timeline, each tensor is a process. Its events are: B NEGOTIATE_X, an instant named by the
// number of each rank that is ready, E; then B X, the phases inside, E. Horovod's cache of responses,
// which is on by default, makes it write no instants, or no NEGOTIATE_X at all, from the second operation
// of a tensor on.
class HorovodVisitor : public TraceVisitor {
 public:
  explicit HorovodVisitor(RunModel& run) : run_(run) {}

  void process(const TraceProcess& event) override { tensor_of(event.pid).name = name_id(event.name); }

  void begin(const TraceSpan& event) override {
    auto& tensor = tensor_of(event.pid);
    if (tensor.depth++ == 0) tensor.start_ns = event.start_ns;
    if (tensor.depth > 1) {
      if (!tensor.negotiating && tensor.transfer_depth == 0 && is_transfer(event.name)) {
        tensor.transfer_depth = tensor.depth;
        if (!tensor.transfer) tensor.transfer = Interval{event.start_ns, event.start_ns};
      }
      return;
    }
    tensor.transfer.reset();
    tensor.transfer_depth = 0;
    tensor.negotiating = event.name.starts_with("NEGOTIATE_");
    tensor.operation = name_id(operation_of(event.name));
    if (tensor.negotiating) tensor.ready.clear();
  }

  void span(const TraceSpan& event) override { tick(event.pid, event.name, event.start_ns); }
  void instant(const TraceInstant& event) override { tick(event.pid, event.name, event.time_ns); }

  void end(std::int64_t pid, std::int64_t, std::int64_t time_ns) override {
    auto& tensor = tensor_of(pid);
    if (tensor.depth == tensor.transfer_depth && tensor.transfer_depth > 0) {
      tensor.transfer->end = std::max(tensor.transfer->end, time_ns);
      tensor.transfer_depth = 0;
    }
    if (tensor.depth == 0 || --tensor.depth > 0 || tensor.negotiating) return;
    const auto before = before_transfer(tensor);
    const auto end = tensor.transfer ? tensor.transfer->end : time_ns;
    CollectiveSpan span;
    span.what = {tensor.count++, static_cast<std::uint16_t>(tensor.number), 0};
    span.matchable = tensor.number <= UINT16_MAX;
    span.name = tensor.name;
    span.operation = tensor.operation;
    for (const auto& [rank, ready_ns] : tensor.ready) {
      tensor.ranks.insert(rank);
      span.start = ready_ns + before;
      span.end = std::max(span.start, end);
      spans_[rank].push_back(span);
    }
    if (tensor.ready.empty()) {
      span.start = tensor.transfer ? tensor.transfer->start : tensor.start_ns;
      span.end = std::max(span.start, end);
      span.arrival_known = false;
      cached_.emplace_back(pid, span);
    }
    tensor.ready.clear();
  }

  void finish() {
    const bool has_ranks = !spans_.empty();
    for (const auto& [pid, span] : cached_) {
      const auto& own = tensors_.at(pid).ranks;
      for (const auto rank : own) spans_[rank].push_back(span);
      if (!own.empty()) continue;
      if (!has_ranks) spans_[0];
      for (auto& [rank, spans] : spans_) spans.push_back(span);
    }
    if (!cached_.empty())
      run_.warnings.push_back(fmt::format(
          "{} operation{} {} ready ranks, so that waiting is unknown{}; HOROVOD_CACHE_CAPACITY=0 records them",
          cached_.size(), cached_.size() == 1 ? "" : "s", cached_.size() == 1 ? "has no" : "have no",
          has_ranks ? "" : ", and so is the number of ranks"));
    for (auto& [rank, spans] : spans_) {
      std::stable_sort(spans.begin(), spans.end(),
                       [](const CollectiveSpan& a, const CollectiveSpan& b) { return a.start < b.start; });
      RankModel model;
      model.rank = rank;
      PackedCollectives packed;
      for (const auto& span : spans) {
        packed.append(span);
        model.extent.start = std::min(model.extent.start, span.start);
        model.extent.end = std::max(model.extent.end, span.end);
      }
      model.packed_collectives.push_back(std::move(packed));
      run_.ranks.push_back(std::move(model));
    }
  }

 private:
  struct Tensor {
    std::size_t number = 0;  // Used as the number of the communicator.
    std::uint32_t name = 0;
    std::uint32_t operation = 0;
    int depth = 0;
    std::int64_t start_ns = 0;  // Of the outermost open span.
    bool negotiating = false;
    std::uint32_t count = 0;
    std::map<int, std::int64_t> ready;  // Indexed by rank.
    std::set<int> ranks;                // Of all its operations.
    std::optional<Interval> transfer;   // From the first to the last phase on the network.
    int transfer_depth = 0;             // Nesting depth of open network phases; 0: none.
  };

  Tensor& tensor_of(std::int64_t pid) {
    const auto [found, is_new] = tensors_.try_emplace(pid);
    if (is_new) found->second.number = tensors_.size() - 1;
    return found->second;
  }

  // Between the readiness of the last rank and the network phase are the queue and the copies into the fusion
  // buffer, which are not transfer. Therefore all arrivals are moved to the begin of the network phase, and
  // their differences are kept.
  static std::int64_t before_transfer(const Tensor& tensor) {
    if (!tensor.transfer || tensor.ready.empty()) return 0;
    auto last = tensor.ready.begin()->second;
    for (const auto& [rank, ready_ns] : tensor.ready) last = std::max(last, ready_ns);
    return std::max<std::int64_t>(0, tensor.transfer->start - last);
  }

  void tick(std::int64_t pid, std::string_view name, std::int64_t time_ns) {
    const auto found = tensors_.find(pid);
    if (found == tensors_.end() || !found->second.negotiating || found->second.depth == 0) return;
    if (const auto rank = rank_of(name)) found->second.ready.try_emplace(*rank, time_ns);
  }

  std::uint32_t name_id(std::string_view text) {
    const auto [found, is_new] =
        ids_.try_emplace(std::string(text), static_cast<std::uint32_t>(run_.names.size()));
    if (is_new) run_.names.emplace_back(text);
    return found->second;
  }

  RunModel& run_;
  std::map<std::int64_t, Tensor> tensors_;
  std::map<std::string, std::uint32_t, std::less<>> ids_;
  std::map<int, std::vector<CollectiveSpan>> spans_;
  std::vector<std::pair<std::int64_t, CollectiveSpan>>
      cached_;  // Operations without ready ranks, by process.
};

}  // namespace

RunModel read_horovod(const std::filesystem::path& file) {
  RunModel run;
  run.source = TraceSource::horovod;
  HorovodVisitor visitor(run);
  auto summary = read_trace(file, visitor);
  run.events = summary.events;
  run.warnings = std::move(summary.warnings);
  visitor.finish();
  if (run.ranks.empty())
    throw CorruptInput("Horovod timeline " + file.string() + " has no completed operation");
  // All times are from the coordinator's clock.
  run.header.ranks = run.ranks.back().rank + 1;
  return run;
}

}  // namespace farandole
