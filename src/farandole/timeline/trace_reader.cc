#include "farandole/timeline/trace_reader.h"

#include <algorithm>
#include <limits>
#include <simdjson.h>

#include "farandole/base/error.h"
#include "farandole/timeline/own_span.h"
#include "farandole/timeline/trace_header.h"
#include "farandole/timeline/trace_scanner.h"

namespace farandole {
namespace {

namespace ondemand = simdjson::ondemand;

// 73 years, so that sums and differences of a few times fit 64 bits.
constexpr std::int64_t max_time_ns = std::int64_t{1} << 61;

// Why one event is left out.
struct Damage {
  std::string why;
};

// All that any kind of event may carry; which of it must be there depends on the kind.
struct Fields {
  char kind = 0;
  std::optional<std::int64_t> pid, tid, start_ns, duration_ns;
  std::string_view category, name;

  std::string_view args_name, host, operation;
  std::optional<std::int64_t> rank, step;
  std::optional<std::uint64_t> sequence, communicator, bytes;
  std::optional<double> value;
  TraceMessage message;
  std::string_view phase;
  bool named_thread = false;  // tid is a text
  bool unwanted = false;      // nobody takes it: the fields behind kind and category were not read
};

void check(simdjson::error_code error) {
  if (error != simdjson::SUCCESS) throw Damage{simdjson::error_message(error)};
}

template <class T>
T get(ondemand::value& value, const char* name, const char* what) {
  T result;
  const auto error = value.get(result);
  if (error == simdjson::SUCCESS) return result;
  if (error == simdjson::INCORRECT_TYPE || error == simdjson::NUMBER_ERROR ||
      error == simdjson::NUMBER_OUT_OF_RANGE)
    throw Damage{std::string(name) + " is not " + what};
  throw Damage{simdjson::error_message(error)};
}

std::string_view text(ondemand::value& value, const char* name) {
  return get<std::string_view>(value, name, "a text");
}
std::int64_t integer(ondemand::value& value, const char* name) {
  return get<std::int64_t>(value, name, "an integer of 64 bits");
}
std::uint64_t count(ondemand::value& value, const char* name) {
  return get<std::uint64_t>(value, name, "a count of 64 bits");
}

// Other programs name some processes and threads by texts; those carry nothing of ours.
std::optional<std::int64_t> identity(ondemand::value& value, const char* name) {
  ondemand::json_type type;
  check(value.type().get(type));
  if (type != ondemand::json_type::number) return std::nullopt;
  return integer(value, name);
}

std::int64_t time(ondemand::value& value, const char* name) {
  const auto ns = nanoseconds_of(value.raw_json_token());
  if (ns && *ns <= max_time_ns && *ns >= -max_time_ns) return *ns;
  throw Damage{std::string(name) + " is not a time that 64 bits hold"};
}

// Keys that spans of other programs use for things of their own.
template <class T, class Target>
void take_as(ondemand::value& value, Target& target) {
  T found;
  if (value.get(found) == simdjson::SUCCESS) target = found;
}
void take_if(ondemand::value& value, std::string_view& target) {
  take_as<std::string_view>(value, target);
}
void take_if(ondemand::value& value, std::optional<std::int64_t>& target) {
  take_as<std::int64_t>(value, target);
}
void take_if(ondemand::value& value, std::optional<double>& target) {
  take_as<double>(value, target);
}

// Of tensors' shapes, [[2,3],[4]] or, of lists of tensors, [[[2,3],[4]]]: 10.
std::uint64_t elements_in(ondemand::value& value, int depth = 0) {
  ondemand::array sizes;
  if (depth > 3 || value.get(sizes) != simdjson::SUCCESS) return 0;
  std::uint64_t sum = 0;
  std::uint64_t product = 0;
  for (auto element : sizes) {
    ondemand::value entry;
    check(element.get(entry));
    std::uint64_t size = 0;
    if (entry.get(size) == simdjson::SUCCESS)
      product = (product == 0 ? 1 : product) * std::min<std::uint64_t>(size, 1U << 31);
    else
      sum += elements_in(entry, depth + 1);
  }
  return sum + product;
}

void take_first(ondemand::value& value, std::string_view& target) {
  ondemand::array entries;
  if (value.get(entries) != simdjson::SUCCESS) return;
  for (auto element : entries) {
    ondemand::value entry;
    check(element.get(entry));
    if (target.empty()) take_if(entry, target);
  }
}

void read_args(ondemand::value& value, Fields& fields) {
  ondemand::object args;
  if (value.get(args) != simdjson::SUCCESS) return;
  for (auto field : args) {
    std::string_view key;
    check(field.unescaped_key().get(key));
    ondemand::value entry;
    check(field.value().get(entry));
    if (key == "step")
      fields.step = integer(entry, "step");
    else if (key == "operation")
      fields.operation = text(entry, "operation");
    else if (key == "communicator")
      fields.communicator = count(entry, "communicator");
    else if (key == "sequence")
      fields.sequence = count(entry, "sequence");
    else if (key == "bytes")
      fields.bytes = count(entry, "bytes");
    else if (key == "value")
      take_if(entry, fields.value);
    else if (key == "name")
      take_if(entry, fields.args_name);
    else if (key == "rank")
      take_if(entry, fields.rank);
    else if (key == "host")
      take_if(entry, fields.host);
    else if (key == "phase")
      take_if(entry, fields.phase);
    else if (key == "Collective name")
      take_if(entry, fields.message.collective);
    else if (key == "In msg nelems")
      take_as<std::uint64_t>(entry, fields.message.elements);
    else if (key == "dtype")
      take_if(entry, fields.message.dtype);
    else if (key == "Process Group Name")
      take_if(entry, fields.message.process_group);
    else if (key == "Group size")
      take_as<std::uint64_t>(entry, fields.message.ranks);
    else if (key == "Input Dims" && fields.name.find(':') != std::string_view::npos)
      fields.message.elements = elements_in(entry);
    else if (key == "Input type" && fields.name.find(':') != std::string_view::npos)
      take_first(entry, fields.message.dtype);
  }
}

// Events of PyTorch's profiler whose many arguments say nothing to us; they come behind category and name
// there.
bool has_idle_args(const Fields& fields) {
  const auto category = fields.category;
  if (category == "kernel") return fields.name.find("ccl") == std::string_view::npos;
  return category == "cpu_op" || category == "cuda_runtime" || category == "cuda_driver" ||
         category == "python_function" || category == "ac2g" || category == "fwdbwd" ||
         category == "gpu_user_annotation";
}

// Arrows between events, of which other programs write one or two for each.
bool is_flow(char kind) {
  return kind == 's' || kind == 't' || kind == 'f';
}

Fields read_fields(ondemand::object& object, const TraceVisitor& visitor) {
  Fields fields;
  for (auto field : object) {
    if (fields.unwanted) {
      check(field.error());
      continue;
    }
    std::string_view key;
    check(field.unescaped_key().get(key));
    ondemand::value value;
    check(field.value().get(value));
    if (key == "ph") {
      const auto kind = text(value, "ph");
      fields.kind = kind.size() == 1 ? kind[0] : '?';
      fields.unwanted = is_flow(fields.kind);
    } else if (key == "ts") {
      fields.start_ns = time(value, "ts");
    } else if (key == "dur") {
      fields.duration_ns = time(value, "dur");
    } else if (key == "pid") {
      fields.pid = identity(value, "pid");
    } else if (key == "tid") {
      fields.tid = identity(value, "tid");
      fields.named_thread = !fields.tid;
    } else if (key == "cat") {
      fields.category = text(value, "cat");
      fields.unwanted |= fields.kind == 'X' && !visitor.wants(fields.category);
    } else if (key == "name") {
      fields.name = text(value, "name");
    } else if (key == "args") {
      if (!has_idle_args(fields)) read_args(value, fields);
    }
  }
  return fields;
}

std::optional<Collective> collective_of(const Fields& fields) {
  if (!fields.sequence) return std::nullopt;
  const auto communicator = fields.communicator.value_or(0);
  if (*fields.sequence > std::numeric_limits<std::uint32_t>::max()) throw Damage{"sequence exceeds 32 bits"};
  if (communicator > std::numeric_limits<std::uint16_t>::max()) throw Damage{"communicator exceeds 16 bits"};
  return Collective{static_cast<std::uint32_t>(*fields.sequence), static_cast<std::uint16_t>(communicator),
                    fields.bytes.value_or(0)};
}

std::int64_t required(const std::optional<std::int64_t>& value, const char* name) {
  if (!value) throw Damage{std::string(name) + " is missing"};
  return *value;
}

TraceSpan span_of(const Fields& fields, std::int64_t duration_ns) {
  return {*fields.pid,
          fields.tid.value_or(0),
          category_of(fields.category).value_or(Category::other),
          fields.name,
          required(fields.start_ns, "ts"),
          duration_ns,
          fields.step,
          fields.operation,
          collective_of(fields),
          fields.category,
          fields.message,
          category_of(fields.phase),
          fields.sequence ? 0 : fields.bytes.value_or(0)};
}

void visit_span(const Fields& fields, TraceVisitor& visitor) {
  const auto span = span_of(fields, required(fields.duration_ns, "dur"));
  if (span.duration_ns < 0) throw Damage{"dur is negative"};
  visitor.span(span);
}

// False for kinds that are not visited.
bool visit(const Fields& fields, TraceVisitor& visitor) {
  if (fields.kind == 0) throw Damage{"ph is missing"};
  if (fields.unwanted || !fields.pid) return false;
  switch (fields.kind) {
    case 'X':
      if (fields.named_thread) return false;
      visit_span(fields, visitor);
      return true;
    case 'B':
      if (fields.named_thread) return false;
      visitor.begin(span_of(fields, 0));
      return true;
    case 'E':
      if (fields.named_thread) return false;
      visitor.end(*fields.pid, fields.tid.value_or(0), required(fields.start_ns, "ts"));
      return true;
    case 'M':
      if (fields.name == "process_name")
        visitor.process({*fields.pid, fields.args_name, fields.rank, fields.host});
      else if (fields.name == "thread_name" && fields.tid)
        visitor.thread({*fields.pid, *fields.tid, fields.args_name});
      else
        return false;
      return true;
    case 'C':
      if (!fields.value) return false;
      visitor.counter({*fields.pid, fields.name, required(fields.start_ns, "ts"), *fields.value});
      return true;
    case 'i':
    case 'I':
      if (!fields.tid) return false;
      visitor.instant(
          {*fields.pid, *fields.tid, fields.name, required(fields.start_ns, "ts"), fields.bytes.value_or(0)});
      return true;
    default:
      return false;
  }
}

// Reads blocks of events where all is sound, and event by event what is not.
class Reader {
 public:
  Reader(const std::filesystem::path& file, TraceVisitor& visitor) : scanner_(file), visitor_(visitor) {}

  TraceSummary run(const std::string& where) {
    for (;;) {
      if (read_own_spans()) continue;
      if (const auto block = scanner_.next_block())
        read_block(*block);
      else if (const auto raw = scanner_.next())
        read_event(*raw);
      else
        break;
    }
    summary_.bytes = scanner_.offset();
    if (summary_.damaged > 0)
      summary_.warnings.push_back(where + ": " + std::to_string(summary_.damaged) + " damaged event" +
                                  (summary_.damaged > 1 ? "s" : "") + " left out, the first " +
                                  first_damage_);
    if (!scanner_.damage().empty())
      summary_.warnings.push_back(where + ": " + scanner_.damage() + "; what is before it was read");
    summary_.header =
        trace_header(scanner_.other_data(), scanner_.distributed_info(), where, summary_.warnings);
    return std::move(summary_);
  }

 private:
  void take(ondemand::object& object) {
    const auto fields = read_fields(object, visitor_);
    if (!visit(fields, visitor_)) ++summary_.unused;
    ++summary_.events;
  }

  // As many spans as come in our writer's own form; false where the next event is none.
  bool read_own_spans() {
    const auto text = scanner_.next_text();
    if (!text) return false;
    const char* const begin = text->text.data();
    const char* const end = begin + text->text.size();
    const char* behind = begin;
    TraceSpan span;
    for (const char* at = begin; at < end;) {
      const char* const next = read_own_span(at, end, span);
      if (next == nullptr || next >= end || (*next != ',' && *next != '\n')) break;
      visitor_.span(span);
      ++summary_.events;
      behind = next;
      if (next[0] != ',' || end - next < 3) break;
      at = next + (next[1] == '\n' ? 2 : 1);
    }
    scanner_.take(static_cast<std::size_t>(behind - begin));
    return behind != begin;
  }

  void read_block(const RawEvent& block) {
    const char* const begin = block.text.data();
    const char* at = begin + 1;  // behind the last event that was taken
    try {
      ondemand::document document;
      check(
          parser_.iterate(begin, block.text.size(), block.text.size() + TraceWindow::padding).get(document));
      ondemand::array events;
      check(document.get_array().get(events));
      for (auto event : events) {
        ondemand::object object;
        check(event.get_object().get(object));
        take(object);
        check(document.current_location().get(at));
      }
      // The array of events may end within the block.
      if (at + 1 != begin + block.text.size()) scanner_.resume_at(static_cast<std::size_t>(at - begin));
    } catch (const Damage&) {
      scanner_.resume_at(static_cast<std::size_t>(at - begin));
    }
  }

  void read_event(const RawEvent& raw) {
    try {
      ondemand::document document;
      check(parser_.iterate(raw.text.data(), raw.text.size(), raw.text.size() + TraceWindow::padding)
                .get(document));
      ondemand::object object;
      check(document.get_object().get(object));
      const auto fields = read_fields(object, visitor_);
      const char* behind = nullptr;
      if (document.current_location().get(behind) == simdjson::SUCCESS)
        throw Damage{"text behind the object"};
      if (!visit(fields, visitor_)) ++summary_.unused;
      ++summary_.events;
    } catch (const Damage& damage) {
      scanner_.reject();
      if (summary_.damaged++ == 0)
        first_damage_ = "at byte " + std::to_string(raw.offset) + ": " + damage.why;
    }
  }

  TraceScanner scanner_;
  TraceVisitor& visitor_;
  ondemand::parser parser_;
  TraceSummary summary_;
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
