#include "farandole/timeline/chrome_trace/trace_writer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fmt/compile.h>
#include <iterator>
#include <utility>

namespace farandole {
namespace {

int process_id(int rank) {
  return rank + 1;
}
int thread_id(TraceWriter::Place place) {
  return 1'000'000 + 1'000 * place.rank + place.thread;
}

// Upper bound of the size of an event without its texts: about 20 numbers and the words around them.
constexpr std::size_t longest_written_event = 768;

char* put(char* at, std::string_view text) {
  std::memcpy(at, text.data(), text.size());
  return at + text.size();
}

char* put(char* at, std::uint64_t number) {
  return std::to_chars(at, at + 20, number).ptr;
}

// Writes microseconds with 3 decimals.
char* put_micros(char* at, std::int64_t ns) {
  const auto value = static_cast<std::uint64_t>(std::max<std::int64_t>(ns, 0));
  at = put(at, value / 1000);
  const auto rest = static_cast<unsigned>(value % 1000);
  at[0] = '.';
  at[1] = static_cast<char>('0' + rest / 100);
  at[2] = static_cast<char>('0' + rest / 10 % 10);
  at[3] = static_cast<char>('0' + rest % 10);
  return at + 4;
}

// `format` is an FMT_COMPILE("…"), which is parsed at compile time.
template <typename Format, typename... Args>
char* print(char* at, Format format, const Args&... args) {
  return fmt::format_to(at, format, args...);
}

std::string json_of(std::string_view text) {
  fmt::memory_buffer buffer;
  append_json_text(buffer, text);
  return fmt::to_string(buffer);
}

}  // namespace

TraceWriter::TraceWriter(const std::filesystem::path& path, const Header& header, unsigned threads)
    : published_(path), file_(published_.temporary(), threads) {
  buffer_.reserve(GzipWriter::piece_bytes + (std::size_t{16} << 10));
  const auto to = std::back_inserter(buffer_);
  fmt::format_to(to, R"({{"displayTimeUnit":"ms","otherData":{{"farandole_trace":1,"ranks":{},)",
                 header.ranks);
  fmt::format_to(to, R"("clock_residual_us":[)");
  for (std::size_t i = 0; i < header.clock_residual_ns.size(); ++i) {
    const std::int64_t ns = header.clock_residual_ns[i];
    if (i > 0) buffer_.push_back(',');
    if (ns < 0)
      fmt::format_to(to, "null");
    else
      fmt::format_to(to, "{}.{:03}", ns / 1000, ns % 1000);
  }
  fmt::format_to(to, R"(]}},"traceEvents":[)");
}

char* TraceWriter::begin_event(std::size_t text_bytes) {
  const std::size_t used = buffer_.size();
  buffer_.reserve(used + longest_written_event + text_bytes);
  return put(buffer_.data() + used, events_++ == 0 ? "\n" : ",\n");
}

void TraceWriter::end_event(char* end) {
  buffer_.resize(static_cast<std::size_t>(end - buffer_.data()));
  if (buffer_.size() >= GzipWriter::piece_bytes) file_.write(buffer_);
}

std::string_view TraceWriter::quoted(std::string_view text) {
  if (text.empty()) return R"("")";
  const std::size_t place = text.size() * 7 + static_cast<unsigned char>(text.front()) * 3u +
                            static_cast<unsigned char>(text.back()) * 37u;
  Quoted& known = quoted_[place % quoted_.size()];
  if (known.text != text) known = {std::string(text), json_of(text)};
  return known.json;
}

char* TraceWriter::put_place(char* at, Place place) {
  if (place.rank != last_place_.rank || place.thread != last_place_.thread) {
    last_place_ = place;
    place_text_ = fmt::format(R"(,"pid":{},"tid":{},"ts":)", process_id(place.rank), thread_id(place));
  }
  return put(at, place_text_);
}

char* TraceWriter::put_span(char* at, Place place, Category category, std::string_view quoted_name,
                            Interval when) {
  const std::int64_t start = std::max<std::int64_t>(when.start_ns, 0);
  at = put(at, R"({"ph":"X","cat":")");
  at = put(at, name_of(category));
  at = put(at, R"(","name":)");
  at = put(at, quoted_name);
  at = put_place(at, place);
  at = put_micros(at, start);
  at = put(at, R"(,"dur":)");
  return put_micros(at, when.end_ns - start);
}

void TraceWriter::process(int rank, std::string_view host) {
  const std::string name = json_of(fmt::format("rank {} · {}", rank, host));
  const std::string quoted_host = json_of(host);
  char* at = begin_event(name.size() + quoted_host.size());
  at = print(at, FMT_COMPILE(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":)"),
             process_id(rank));
  at = put(at, name);
  at = print(at, FMT_COMPILE(R"(,"rank":{},"host":)"), rank);
  at = put(at, quoted_host);
  end_event(put(at, "}}"));
  at = begin_event(0);
  end_event(print(
      at, FMT_COMPILE(R"({{"ph":"M","name":"process_sort_index","pid":{},"args":{{"sort_index":{}}}}})"),
      process_id(rank), rank));
}

void TraceWriter::process_label(int rank, std::string_view label) {
  const std::string text = json_of(label);
  char* at = begin_event(text.size());
  at = print(at, FMT_COMPILE(R"({{"ph":"M","name":"process_labels","pid":{},"args":{{"labels":)"),
             process_id(rank));
  at = put(at, text);
  end_event(put(at, "}}"));
}

void TraceWriter::thread(Place place, std::string_view name) {
  const std::string text = json_of(name);
  char* at = begin_event(text.size());
  at = print(at, FMT_COMPILE(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":)"),
             process_id(place.rank), thread_id(place));
  at = put(at, text);
  end_event(put(at, "}}"));
  at = begin_event(0);
  end_event(print(
      at,
      FMT_COMPILE(R"({{"ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})"),
      process_id(place.rank), thread_id(place), place.thread));
}

void TraceWriter::span(Place place, Interval when, const SpanFacts& what) {
  const std::string_view text = quoted(what.name);
  char* at = put_span(begin_event(text.size()), place, what.category, text, when);
  std::string_view before = R"(,"args":{)";
  const auto argument = [&](std::string_view key, std::int64_t value) {
    at = put(put(at, std::exchange(before, ",")), key);
    at = std::to_chars(at, at + 20, value).ptr;
  };
  if (what.step >= 0) argument(R"("step":)", what.step);
  if (what.phase) {
    at = put(put(put(at, std::exchange(before, ",")), R"("phase":")"), name_of(*what.phase));
    *at++ = '"';
  }
  if (what.queued_ns > 0)
    at = put_micros(put(put(at, std::exchange(before, ",")), R"("queued_us":)"), what.queued_ns);
  const MpiCall& call = what.call;
  if (call.bytes) argument(R"("bytes":)", static_cast<std::int64_t>(*call.bytes));
  if (call.peer) argument(R"("peer":)", *call.peer);
  if (call.root) argument(R"("root":)", *call.root);
  if (call.tag) argument(R"("tag":)", *call.tag);
  if (call.ranks) argument(R"("ranks":)", *call.ranks);
  if (call.requests) argument(R"("requests":)", *call.requests);
  if (call.polls > 0) argument(R"("polls":)", static_cast<std::int64_t>(call.polls));
  if (before == ",") *at++ = '}';
  *at++ = '}';
  end_event(at);
}

void TraceWriter::collective(Place place, std::string_view name, std::string_view operation,
                             const Collective& what, std::int64_t step, Interval when) {
  const std::string text(quoted(name));
  const std::string_view call = quoted(operation);
  char* at = put_span(begin_event(text.size() + call.size()), place, Category::communication, text, when);
  at = put(at, R"(,"args":{)");
  if (step >= 0) {
    at = put(at, R"("step":)");
    at = put(at, static_cast<std::uint64_t>(step));
    *at++ = ',';
  }
  at = put(at, R"("operation":)");
  at = put(at, call);
  at = put(at, R"(,"communicator":)");
  at = put(at, std::uint64_t{what.communicator});
  at = put(at, R"(,"sequence":)");
  at = put(at, std::uint64_t{what.sequence});
  at = put(at, R"(,"bytes":)");
  at = put(at, what.bytes);
  end_event(put(at, "}}"));
}

void TraceWriter::instant(Place place, std::string_view name, std::int64_t at_ns, std::uint64_t bytes) {
  const std::string_view text = quoted(name);
  char* at = put(begin_event(text.size()), R"({"ph":"i","s":"t","cat":"other","name":)");
  at = put_place(put(at, text), place);
  at = put_micros(at, at_ns);
  if (bytes > 0) {
    at = put(at, R"(,"args":{"bytes":)");
    at = put(at, bytes);
    *at++ = '}';
  }
  *at++ = '}';
  end_event(at);
}

void TraceWriter::counter(int rank, std::string_view name, std::int64_t at_ns, double value) {
  if (!std::isfinite(value)) return;
  const std::string_view text = quoted(name);
  char* at = put(begin_event(text.size()), R"({"ph":"C","name":)");
  at = put(put(at, text), R"(,"pid":)");
  at = put(put(at, static_cast<std::uint64_t>(process_id(rank))), R"(,"ts":)");
  at = put(put_micros(at, at_ns), R"(,"args":{"value":)");
  end_event(put(print(at, FMT_COMPILE("{}"), value), "}}"));
}

void TraceWriter::flow(std::uint64_t id, Place from, std::int64_t from_ns, Place to, std::int64_t to_ns) {
  const auto end_of = [&](std::string_view start, Place place, std::int64_t at_ns) {
    char* at = put(begin_event(0), start);
    at = put_place(put(at, id), place);
    at = put_micros(at, at_ns);
    *at++ = '}';
    end_event(at);
  };
  end_of(R"({"ph":"s","cat":"flow","name":"collective","id":)", from, from_ns);
  end_of(R"({"ph":"f","bp":"e","cat":"flow","name":"collective","id":)", to, to_ns);
}

void TraceWriter::finish() {
  constexpr std::string_view end = "\n]}\n";
  buffer_.append(end.data(), end.data() + end.size());
  file_.write(buffer_);
  file_.finish();
  published_.publish();
}

namespace {

constexpr std::array<bool, 256> plain = [] {
  std::array<bool, 256> table{};
  for (int c = 0x20; c < 0x7f; ++c) table[static_cast<std::size_t>(c)] = c != '"' && c != '\\';
  return table;
}();

bool is_plain(char c) {
  return plain[static_cast<unsigned char>(c)];
}

// The length of the UTF-8 character at the start of `text`; 0 if it is invalid (overlong,
// surrogate, above U+10FFFF, truncated).
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<std::uint8_t>(text[i]) : 0u; };
  const auto follows = [&](std::size_t i) { return (byte(i) & 0xc0u) == 0x80u; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return follows(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const bool allowed = first == 0xe0 ? byte(1) >= 0xa0 : first == 0xed ? byte(1) <= 0x9f : true;
    return allowed && follows(1) && follows(2) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool allowed = first == 0xf0 ? byte(1) >= 0x90 : first == 0xf4 ? byte(1) <= 0x8f : true;
    return allowed && follows(1) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

void append(fmt::memory_buffer& to, std::string_view text) {
  to.append(text.data(), text.data() + text.size());
}

}  // namespace

void append_json_text(fmt::memory_buffer& to, std::string_view text) {
  to.push_back('"');
  while (!text.empty()) {
    const auto count =
        static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), is_plain) - text.begin());
    append(to, text.substr(0, count));
    text.remove_prefix(count);
    if (text.empty()) break;
    const std::size_t length = character_length(text);
    const auto c = static_cast<unsigned char>(text.front());
    if (length > 1)
      append(to, text.substr(0, length));
    else if (length == 0)
      append(to, "\xef\xbf\xbd");
    else if (c == '"' || c == '\\')
      fmt::format_to(std::back_inserter(to), "\\{}", static_cast<char>(c));
    else
      fmt::format_to(std::back_inserter(to), "\\u{:04x}", c);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  to.push_back('"');
}

}  // namespace farandole
