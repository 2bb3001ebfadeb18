#include "farandole/timeline/trace_writer.h"

#include <algorithm>
#include <cmath>
#include <fmt/compile.h>
#include <iterator>
#include <unistd.h>

#include "farandole/base/atomic_file.h"
#include "farandole/timeline/json_text.h"

namespace farandole {
namespace {

int process_id(int rank) {
  return rank + 1;
}
int thread_id(TraceWriter::Place place) {
  return 1'000'000 + 1'000 * place.rank + place.thread;
}

struct Micros {
  std::int64_t whole;
  int thousandths;
  explicit Micros(std::int64_t ns)
      : whole(std::max<std::int64_t>(ns, 0) / 1000),
        thousandths(static_cast<int>(std::max<std::int64_t>(ns, 0) % 1000)) {}
};

// `format` is an FMT_COMPILE("…"): parsed when this file is compiled.
template <typename Format, typename... Args>
void print(fmt::memory_buffer& to, Format format, const Args&... args) {
  fmt::format_to(std::back_inserter(to), format, args...);
}

void append(fmt::memory_buffer& to, std::string_view text) {
  to.append(text.data(), text.data() + text.size());
}

}  // namespace

TraceWriter::TraceWriter(const std::filesystem::path& path, const Header& header)
    : path_(path), temporary_(temporary_beside(path)), file_(temporary_) {
  print(buffer_,
        FMT_COMPILE(
            R"({{"displayTimeUnit":"ms","otherData":{{"farandole_trace":1,"ranks":{},"clock_residual_us":[)"),
        header.ranks);
  for (std::size_t i = 0; i < header.clock_residual_ns.size(); ++i) {
    const std::int64_t ns = header.clock_residual_ns[i];
    if (i > 0) buffer_.push_back(',');
    if (ns < 0)
      append(buffer_, "null");
    else
      print(buffer_, FMT_COMPILE("{}.{:03}"), Micros(ns).whole, Micros(ns).thousandths);
  }
  append(buffer_, R"(]},"traceEvents":[)");
}

TraceWriter::~TraceWriter() {
  if (!finished_) ::unlink(temporary_.c_str());
}

void TraceWriter::begin_event() {
  append(buffer_, events_++ == 0 ? "\n" : ",\n");
}

void TraceWriter::end_event() {
  if (buffer_.size() < GzipWriter::piece_bytes) return;
  file_.write(fmt::to_string(buffer_));
  buffer_.clear();
}

void TraceWriter::text(std::string_view value) {
  append_json_text(buffer_, value);
}

void TraceWriter::process(int rank, std::string_view host) {
  begin_event();
  print(buffer_, FMT_COMPILE(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":)"),
        process_id(rank));
  text(fmt::format("rank {} · {}", rank, host));
  print(buffer_, FMT_COMPILE(R"(,"rank":{},"host":)"), rank);
  text(host);
  append(buffer_, "}}");
  begin_event();
  print(buffer_,
        FMT_COMPILE(R"({{"ph":"M","name":"process_sort_index","pid":{},"args":{{"sort_index":{}}}}})"),
        process_id(rank), rank);
  end_event();
}

void TraceWriter::process_label(int rank, std::string_view label) {
  begin_event();
  print(buffer_, FMT_COMPILE(R"({{"ph":"M","name":"process_labels","pid":{},"args":{{"labels":)"),
        process_id(rank));
  text(label);
  append(buffer_, "}}");
  end_event();
}

void TraceWriter::thread(Place place, std::string_view name) {
  begin_event();
  print(buffer_, FMT_COMPILE(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":)"),
        process_id(place.rank), thread_id(place));
  text(name);
  append(buffer_, "}}");
  begin_event();
  print(
      buffer_,
      FMT_COMPILE(R"({{"ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})"),
      process_id(place.rank), thread_id(place), place.thread);
  end_event();
}

void TraceWriter::begin_span(Place place, Category category, std::string_view name, Interval when) {
  const std::int64_t start = std::max<std::int64_t>(when.start_ns, 0);
  const Micros ts(start);
  const Micros duration(when.end_ns - start);
  begin_event();
  print(buffer_, FMT_COMPILE(R"({{"ph":"X","cat":"{}","name":)"), name_of(category));
  text(name);
  print(buffer_, FMT_COMPILE(R"(,"pid":{},"tid":{},"ts":{}.{:03},"dur":{}.{:03})"), process_id(place.rank),
        thread_id(place), ts.whole, ts.thousandths, duration.whole, duration.thousandths);
}

void TraceWriter::span(Place place, Category category, std::string_view name, std::int64_t step,
                       Interval when) {
  begin_span(place, category, name, when);
  if (step >= 0) print(buffer_, FMT_COMPILE(R"(,"args":{{"step":{}}})"), step);
  buffer_.push_back('}');
  end_event();
}

void TraceWriter::collective(Place place, std::string_view name, std::string_view operation,
                             const Collective& what, std::int64_t step, Interval when) {
  begin_span(place, Category::communication, name, when);
  append(buffer_, R"(,"args":{)");
  if (step >= 0) print(buffer_, FMT_COMPILE(R"("step":{},)"), step);
  append(buffer_, R"("operation":)");
  text(operation);
  print(buffer_, FMT_COMPILE(R"(,"communicator":{},"sequence":{},"bytes":{}}}}})"), what.communicator,
        what.sequence, what.bytes);
  end_event();
}

void TraceWriter::instant(Place place, std::string_view name, std::int64_t at_ns) {
  const Micros ts(at_ns);
  begin_event();
  append(buffer_, R"({"ph":"i","s":"t","cat":"other","name":)");
  text(name);
  print(buffer_, FMT_COMPILE(R"(,"pid":{},"tid":{},"ts":{}.{:03}}})"), process_id(place.rank),
        thread_id(place), ts.whole, ts.thousandths);
  end_event();
}

void TraceWriter::counter(int rank, std::string_view name, std::int64_t at_ns, double value) {
  if (!std::isfinite(value)) return;
  const Micros ts(at_ns);
  begin_event();
  append(buffer_, R"({"ph":"C","name":)");
  text(name);
  print(buffer_, FMT_COMPILE(R"(,"pid":{},"ts":{}.{:03},"args":{{"value":{}}}}})"), process_id(rank),
        ts.whole, ts.thousandths, value);
  end_event();
}

void TraceWriter::flow(std::uint64_t id, Place from, std::int64_t from_ns, Place to, std::int64_t to_ns) {
  const Micros start(from_ns);
  const Micros end(to_ns);
  begin_event();
  print(
      buffer_,
      FMT_COMPILE(R"({{"ph":"s","cat":"flow","name":"collective","id":{},"pid":{},"tid":{},"ts":{}.{:03}}})"),
      id, process_id(from.rank), thread_id(from), start.whole, start.thousandths);
  begin_event();
  print(
      buffer_,
      FMT_COMPILE(
          R"({{"ph":"f","bp":"e","cat":"flow","name":"collective","id":{},"pid":{},"tid":{},"ts":{}.{:03}}})"),
      id, process_id(to.rank), thread_id(to), end.whole, end.thousandths);
  end_event();
}

void TraceWriter::finish() {
  append(buffer_, "\n]}\n");
  file_.write(fmt::to_string(buffer_));
  file_.finish();
  publish_file(temporary_, path_);
  finished_ = true;
}

}  // namespace farandole
