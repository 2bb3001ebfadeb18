#include "farandole/timeline/chrome_trace/trace_reader.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/timeline/chrome_trace/event_reader.h"
#include "farandole/timeline/chrome_trace/trace_scanner.h"

namespace farandole {
namespace {

// Parses the texts of "otherData" and of PyTorch's "distributedInfo"; each of them may be empty. Damage is
// appended to `warnings`, with `where` at the beginning of each line.
TraceHeader trace_header(const std::string& other_data, const std::string& distributed_info,
                         const std::string& where, std::vector<std::string>& warnings) {
  TraceHeader header;
  const auto take = [](const Json& object, const char* key, std::optional<std::int64_t>& target) {
    const auto found = object.find(key);
    if (found == object.end()) return;
    if (found->is_number_integer()) target = found->get<std::int64_t>();
    if (found->is_string()) target = parse_number<std::int64_t>(found->get_ref<const std::string&>());
  };
  if (const auto json = try_parse_json(distributed_info); json.is_object()) {
    take(json, "rank", header.kineto_rank);
    take(json, "world_size", header.kineto_world_size);
    if (const auto found = json.find("backend"); found != json.end() && found->is_string())
      header.kineto_backend = found->get<std::string>();
  }
  if (other_data.empty()) return header;
  const auto json = try_parse_json(other_data);
  if (!json.is_object()) {
    warnings.push_back(where + ": otherData is damaged and is ignored");
    return header;
  }
  take(json, "farandole_trace", header.farandole_trace);
  take(json, "ranks", header.ranks);
  if (const auto found = json.find("clock_residual_us"); found != json.end() && found->is_array())
    for (const auto& residual : *found)
      header.clock_residual_us.push_back(
          residual.is_number() ? std::optional(std::abs(residual.get<double>())) : std::nullopt);
  return header;
}

void require(bool present, const char* name) {
  if (!present) throw EventDamage{std::string(name) + " is missing"};
}

// Completes the span and returns it.
const TraceSpan& span_of(EventFields& fields) {
  require(fields.has_start, "ts");
  TraceSpan& span = fields.span;
  if (!fields.has_tid) span.tid = 0;
  span.bytes = fields.bytes.value_or(0);
  span.collective.reset();
  if (!fields.sequence) return span;
  const auto communicator = fields.communicator.value_or(0);
  if (*fields.sequence > UINT32_MAX) throw EventDamage{"sequence exceeds 32 bits"};
  if (communicator > UINT16_MAX) throw EventDamage{"communicator exceeds 16 bits"};
  span.collective = {static_cast<std::uint32_t>(*fields.sequence), static_cast<std::uint16_t>(communicator),
                     std::exchange(span.bytes, 0)};
  return span;
}

// Returns false for kinds that are not visited.
bool visit(EventFields& fields, TraceVisitor& visitor) {
  // XLA's profiler ends its traces with an empty event.
  if (fields.kind == 0 && (fields.has_pid || fields.has_start || !fields.span.name.empty()))
    throw EventDamage{"ph is missing"};
  if (fields.unwanted || !fields.has_pid) return false;
  TraceSpan& span = fields.span;
  switch (fields.kind) {
    case 'X':
      require(fields.has_duration, "dur");
      if (span.duration_ns < 0) throw EventDamage{"dur is negative"};
      visitor.span(span_of(fields));
      return true;
    case 'B':
      span.duration_ns = 0;
      visitor.begin(span_of(fields));
      return true;
    case 'E':
      require(fields.has_start, "ts");
      visitor.end(span.pid, fields.has_tid ? span.tid : 0, span.start_ns);
      return true;
    case 'M':
      if (span.name == "process_name")
        visitor.process({span.pid, fields.args_name, fields.rank, fields.host});
      else if (span.name == "thread_name" && fields.has_tid)
        visitor.thread({span.pid, span.tid, fields.args_name});
      else
        return false;
      return true;
    case 'i':
    case 'I':
      if (!fields.has_tid) return false;
      require(fields.has_start, "ts");
      visitor.instant({span.pid, span.name, span.start_ns});
      return true;
    case 'C':
      if (!fields.value) return false;
      require(fields.has_start, "ts");
      visitor.counter({span.pid, span.name, span.start_ns, *fields.value});
      return true;
    default:
      return false;
  }
}

// Reads the events of each window in turn. An event that is damaged, or that the window cuts, is read
// once more alone.
class Reader {
 public:
  Reader(const std::filesystem::path& file, TraceVisitor& visitor)
      : scanner_(file), visitor_(visitor), reader_(visitor) {}

  TraceSummary run(const std::string& where) {
    while (read_window() || read_alone()) {
    }
    summary_.bytes = scanner_.offset();
    if (summary_.damaged > 0)
      summary_.warnings.push_back(where + ": " + std::to_string(summary_.damaged) + " damaged event" +
                                  (summary_.damaged > 1 ? "s" : "") + " left out, the first " +
                                  first_damage_);
    if (!scanner_.damage().empty()) {
      summary_.damage = where + ": " + scanner_.damage();
      summary_.warnings.push_back(summary_.damage + "; everything before it was read");
    }
    summary_.header =
        trace_header(scanner_.other_data(), scanner_.distributed_info(), where, summary_.warnings);
    return std::move(summary_);
  }

 private:
  void take_event() {
    const auto& fields = reader_.fields();
    if (!fields.pid_text.empty() && !fields.unwanted && named_.insert(fields.span.pid).second)
      visitor_.process({fields.span.pid, fields.pid_text, {}, {}});
    if (!visit(reader_.fields(), visitor_)) ++summary_.unused;
    ++summary_.events;
  }

  // Reads the events in the scanner's window, up to one that is damaged or continues behind the window.
  // Returns false if there is none.
  bool read_window() {
    const auto window = scanner_.next_text();
    if (!window) return false;
    const char* const begin = window->text.data();
    const char* behind = begin;  // the last event that was taken
    try {
      for (const char* at = begin; *at == '{';) {
        at = reader_.read(at);
        take_event();
        behind = at;
        if (*at == ',') ++at;
        while (*at == '\n' || *at == ' ') ++at;
      }
    } catch (const EventDamage&) {  // read_alone() finds the reason
    }
    scanner_.take(static_cast<std::size_t>(behind - begin));
    return behind != begin;
  }

  // Reads one event, or leaves it out if it is damaged. Returns false at the end of the trace.
  bool read_alone() {
    const auto raw = scanner_.next();
    if (!raw) return false;
    try {
      if (reader_.read(raw->text.data()) != raw->text.data() + raw->text.size())
        throw EventDamage{"its brackets do not match"};
      take_event();
    } catch (const EventDamage& damage) {
      scanner_.reject();
      if (summary_.damaged++ == 0)
        first_damage_ = "at byte " + std::to_string(raw->offset) + ": " + damage.why;
    }
    return true;
  }

  TraceScanner scanner_;
  TraceVisitor& visitor_;
  EventReader reader_;
  TraceSummary summary_;
  std::unordered_set<std::int64_t> named_;  // processes that texts identify
  std::string first_damage_;
};

}  // namespace

TraceSummary read_trace(const std::filesystem::path& file, TraceVisitor& visitor) {
  const auto where = "trace " + file.string();
  auto summary = Reader(file, visitor).run(where);
  if (summary.events == 0)
    throw CorruptInput(summary.warnings.empty() ? where + " holds no events" : summary.warnings.front());
  return summary;
}

}  // namespace farandole
