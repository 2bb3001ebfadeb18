#include "farandole/timeline/chrome_trace/trace_reader.h"

#include <cmath>
#include <limits>
#include <simdjson.h>
#include <string>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/text/json.h"
#include "farandole/timeline/chrome_trace/event_fields.h"
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
    if (found != object.end() && found->is_number_integer()) target = found->get<std::int64_t>();
  };
  if (const auto json = try_parse_json(distributed_info); json.is_object()) {
    take(json, "rank", header.kineto_rank);
    take(json, "world_size", header.kineto_world_size);
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

namespace ondemand = simdjson::ondemand;

std::optional<Collective> collective_of(const EventFields& fields) {
  if (!fields.sequence) return std::nullopt;
  const auto communicator = fields.communicator.value_or(0);
  if (*fields.sequence > std::numeric_limits<std::uint32_t>::max())
    throw EventDamage{"sequence exceeds 32 bits"};
  if (communicator > std::numeric_limits<std::uint16_t>::max())
    throw EventDamage{"communicator exceeds 16 bits"};
  return Collective{static_cast<std::uint32_t>(*fields.sequence), static_cast<std::uint16_t>(communicator),
                    fields.bytes.value_or(0)};
}

std::int64_t required(const std::optional<std::int64_t>& value, const char* name) {
  if (!value) throw EventDamage{std::string(name) + " is missing"};
  return *value;
}

TraceSpan span_of(const EventFields& fields, std::int64_t duration_ns) {
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

void visit_span(const EventFields& fields, TraceVisitor& visitor) {
  const auto span = span_of(fields, required(fields.duration_ns, "dur"));
  if (span.duration_ns < 0) throw EventDamage{"dur is negative"};
  visitor.span(span);
}

// Returns false for kinds that are not visited.
bool visit(const EventFields& fields, TraceVisitor& visitor) {
  if (fields.kind == 0) throw EventDamage{"ph is missing"};
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

// Reads events of known forms directly and other events as JSON. JSON is read in blocks. It is read event by
// event if known forms are mixed with others, or if the block is damaged.
class Reader {
 public:
  Reader(const std::filesystem::path& file, TraceVisitor& visitor) : scanner_(file), visitor_(visitor) {}

  TraceSummary run(const std::string& where) {
    // If at least this many events of a known form came before, up to `most_strangers` other events are read
    // one by one, because known ones will follow.
    constexpr std::uint64_t enough_known = 8;
    constexpr int most_strangers = 32;
    for (int strangers_left = 0;;) {
      if (const auto known = read_known_forms(); known > 0) {
        strangers_left = known >= enough_known ? most_strangers : 0;
        continue;
      }
      const bool stranger = strangers_left > 0;
      if (stranger) --strangers_left;
      const auto block = stranger ? std::nullopt : scanner_.next_block();
      if (block) {
        read_block(*block);
      } else if (const auto raw = scanner_.next()) {
        read_event(*raw);
      } else {
        break;
      }
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
  void take(ondemand::object& object) {
    read_fields(object, visitor_, fields_);
    if (!visit(fields_, visitor_)) ++summary_.unused;
    ++summary_.events;
  }

  // Reads as many events of known forms as follow each other. Without read_own_event(), `farandole
  // analyze` takes 2.8 times as long on the trace of a synthetic run (1,024 ranks, 50 steps, 240 MB), and
  // 1.2 times as long, 17 instead of 14 ms, on that of quickstart (2 ranks). Without read_kineto_event(),
  // it takes 1.6 times as long on 34 MB of PyTorch's profiler. These are ratios of CPU time of the whole
  // command, medians of 5 to 9 interleaved runs on two cores, with a blank before each event that only the
  // JSON parser accepts.
  std::uint64_t read_known_forms() {
    const auto before = summary_.events;
    read_known_form([this](auto... text) { return take_own_event(text...); });
    if (summary_.events == before)
      read_known_form([this](auto... text) { return take_kineto_event(text...); });
    return summary_.events - before;
  }

  // take(at, end) returns the position after the event that begins at `at`, or nullptr if the
  // event has another form.
  template <class Take>
  void read_known_form(Take&& take) {
    const auto text = scanner_.next_text();
    if (!text) return;
    const char* const begin = text->text.data();
    const char* const end = begin + text->text.size();
    const char* behind = begin;
    for (const char* at = begin; at < end;) {
      const char* const next = take(at, end);
      if (next == nullptr) break;
      ++summary_.events;
      behind = at = next;
      if (*at++ != ',') break;
      while (at < end && (*at == '\n' || *at == ' ')) ++at;
    }
    scanner_.take(static_cast<std::size_t>(behind - begin));
  }

  // True if a whole event ends before `next`.
  static bool is_over(const char* next, const char* end) {
    return next != nullptr && next < end && (*next == ',' || *next == '\n');
  }

  const char* take_own_event(const char* at, const char* end) {
    const char* const next = read_own_event(at, end, own_);
    if (!is_over(next, end)) return nullptr;
    const auto& span = own_.span;
    if (own_.kind == OwnEvent::Kind::span)
      visitor_.span(span);
    else if (own_.kind == OwnEvent::Kind::instant)
      visitor_.instant({span.pid, span.tid, span.name, span.start_ns, span.bytes});
    else
      ++summary_.unused;
    return next;
  }

  const char* take_kineto_event(const char* at, const char* end) {
    std::string_view args;
    const char* const next = read_kineto_event(at, end, visitor_, fields_, args);
    if (!is_over(next, end)) return nullptr;
    try {
      if (!args.empty()) read_args(args, parser_, fields_);
      if (!visit(fields_, visitor_)) ++summary_.unused;
    } catch (const EventDamage&) {
      return nullptr;
    }
    return next;
  }

  void read_block(const RawEvent& block) {
    const char* const begin = block.text.data();
    const char* at = begin + 1;  // after the last event that was taken
    try {
      ondemand::document document;
      check_json(
          parser_.iterate(begin, block.text.size(), block.text.size() + TraceWindow::padding).get(document));
      ondemand::array events;
      check_json(document.get_array().get(events));
      for (auto event : events) {
        ondemand::object object;
        check_json(event.get_object().get(object));
        take(object);
        check_json(document.current_location().get(at));
      }
      // The array of events may end within the block.
      if (at + 1 != begin + block.text.size()) scanner_.resume_at(static_cast<std::size_t>(at - begin));
    } catch (const EventDamage&) {
      scanner_.resume_at(static_cast<std::size_t>(at - begin));
    }
  }

  void read_event(const RawEvent& raw) {
    try {
      ondemand::document document;
      check_json(parser_.iterate(raw.text.data(), raw.text.size(), raw.text.size() + TraceWindow::padding)
                     .get(document));
      ondemand::object object;
      check_json(document.get_object().get(object));
      read_fields(object, visitor_, fields_);
      const char* behind = nullptr;
      if (document.current_location().get(behind) == simdjson::SUCCESS)
        throw EventDamage{"there is text after the object"};
      if (!visit(fields_, visitor_)) ++summary_.unused;
      ++summary_.events;
    } catch (const EventDamage& damage) {
      scanner_.reject();
      if (summary_.damaged++ == 0)
        first_damage_ = "at byte " + std::to_string(raw.offset) + ": " + damage.why;
    }
  }

  TraceScanner scanner_;
  TraceVisitor& visitor_;
  ondemand::parser parser_;
  OwnEvent own_;        // the current event in our form
  EventFields fields_;  // or in another form
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
