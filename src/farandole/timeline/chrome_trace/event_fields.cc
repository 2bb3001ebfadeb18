#include "farandole/timeline/chrome_trace/event_fields.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "farandole/base/text/parse_number.h"

namespace farandole {
namespace {

namespace ondemand = simdjson::ondemand;

// 73 years, so that the sum or difference of a few times fits into 64 bits.
constexpr std::int64_t max_time_ns = std::int64_t{1} << 61;

template <class T>
T get(ondemand::value& value, const char* name, const char* what) {
  T result;
  const auto error = value.get(result);
  if (error == simdjson::SUCCESS) return result;
  if (error == simdjson::INCORRECT_TYPE || error == simdjson::NUMBER_ERROR ||
      error == simdjson::NUMBER_OUT_OF_RANGE)
    throw EventDamage{std::string(name) + " is not " + what};
  throw EventDamage{simdjson::error_message(error)};
}

// Most texts need no unescaping and are used directly from the input.
std::string_view text(ondemand::value& value, const char* name) {
  std::string_view token = value.raw_json_token();
  while (!token.empty() && token.back() <= ' ') token.remove_suffix(1);
  if (token.size() >= 2 && token.front() == '"' && token.back() == '"') {
    const auto inside = token.substr(1, token.size() - 2);
    if (inside.empty() || std::memchr(inside.data(), '\\', inside.size()) == nullptr) return inside;
  }
  return get<std::string_view>(value, name, "a text");
}
std::int64_t integer(ondemand::value& value, const char* name) {
  return get<std::int64_t>(value, name, "an integer of 64 bits");
}
std::uint64_t count(ondemand::value& value, const char* name) {
  return get<std::uint64_t>(value, name, "a count of 64 bits");
}

// Other programs identify some processes and threads by texts. These events contain nothing
// that is used here.
std::optional<std::int64_t> identity(ondemand::value& value, const char* name) {
  ondemand::json_type type;
  check_json(value.type().get(type));
  if (type != ondemand::json_type::number) return std::nullopt;
  return integer(value, name);
}

std::int64_t time(ondemand::value& value, const char* name) {
  const auto ns = nanoseconds_of(value.raw_json_token());
  if (ns && *ns <= max_time_ns && *ns >= -max_time_ns) return *ns;
  throw EventDamage{std::string(name) + " is not a time that 64 bits hold"};
}

// Other programs use these keys for their own purposes, so values of another type are ignored.
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

// The number of elements of tensors with these shapes: 10 for [[2,3],[4]] and for the list
// of tensor lists [[[2,3],[4]]].
std::uint64_t elements_in(ondemand::value& value, int depth = 0) {
  ondemand::array sizes;
  if (depth > 3 || value.get(sizes) != simdjson::SUCCESS) return 0;
  std::uint64_t sum = 0;
  std::uint64_t product = 0;
  for (auto element : sizes) {
    ondemand::value entry;
    check_json(element.get(entry));
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
    check_json(element.get(entry));
    if (target.empty()) take_if(entry, target);
  }
}

// A field's key in the input with its closing quote. At least 64 readable bytes follow the last key.
class Key {
 public:
  template <class Field>
  explicit Key(Field& field) {
    ondemand::raw_json_string key;
    check_json(field.key().get(key));
    begin_ = key.raw();
  }
  bool is(std::string_view word_and_quote) const {
    return std::memcmp(begin_, word_and_quote.data(), word_and_quote.size()) == 0;
  }

 private:
  const char* begin_;
};

// Events of PyTorch's profiler whose many arguments are not needed. In these events, the arguments come
// after category and name.
bool has_idle_args(const EventFields& fields) {
  static constexpr std::array<std::string_view, 7> idle = {
      "cpu_op", "cuda_runtime", "cuda_driver", "python_function", "ac2g", "fwdbwd", "gpu_user_annotation"};
  return std::find(idle.begin(), idle.end(), fields.category) != idle.end();
}

// True if a collective launched the GPU kernel. PyTorch's profiler says so in the arguments, whatever
// the kernel's name is.
bool are_of_collective(std::string_view args) {
  return args.find("Collective name\"") != std::string_view::npos;
}

void read_entries(ondemand::object& args, EventFields& fields) {
  fields.has_args = true;
  for (auto field : args) {
    const Key key(field);
    ondemand::value entry;
    check_json(field.value().get(entry));
    if (key.is(R"(step")"))
      fields.step = integer(entry, "step");
    else if (key.is(R"(operation")"))
      fields.operation = text(entry, "operation");
    else if (key.is(R"(communicator")"))
      fields.communicator = count(entry, "communicator");
    else if (key.is(R"(sequence")"))
      fields.sequence = count(entry, "sequence");
    else if (key.is(R"(bytes")"))
      fields.bytes = count(entry, "bytes");
    else if (key.is(R"(name")"))
      take_if(entry, fields.args_name);
    else if (key.is(R"(rank")"))
      take_if(entry, fields.rank);
    else if (key.is(R"(host")"))
      take_if(entry, fields.host);
    else if (key.is(R"(phase")"))
      take_if(entry, fields.phase);
    else if (key.is(R"(Collective name")"))
      take_if(entry, fields.message.collective);
    else if (key.is(R"(In msg nelems")"))
      take_as<std::uint64_t>(entry, fields.message.elements);
    else if (key.is(R"(dtype")"))
      take_if(entry, fields.message.dtype);
    else if (key.is(R"(Process Group Name")"))
      take_if(entry, fields.message.process_group);
    else if (key.is(R"(Group size")") || key.is(R"(ranks")"))
      take_as<std::uint64_t>(entry, fields.message.ranks);
    else if (key.is(R"(Input Dims")") && fields.name.find(':') != std::string_view::npos)
      fields.message.elements = elements_in(entry);
    else if (key.is(R"(Input type")") && fields.name.find(':') != std::string_view::npos)
      take_first(entry, fields.message.dtype);
  }
}

void read_args(ondemand::value& value, EventFields& fields) {
  ondemand::object args;
  if (has_idle_args(fields) || value.get(args) != simdjson::SUCCESS) return;
  if (fields.category == "kernel") {
    std::string_view text;
    check_json(args.raw_json().get(text));
    if (!are_of_collective(text)) return;
    check_json(args.reset().error());
  }
  read_entries(args, fields);
}

// Arrows between events. Other programs write one or two of them per event.
bool is_flow(char kind) {
  return kind == 's' || kind == 't' || kind == 'f';
}

}  // namespace

void EventFields::clear() {
  kind = 0;
  pid.reset();
  tid.reset();
  start_ns.reset();
  duration_ns.reset();
  category = name = {};
  named_thread = unwanted = false;
  if (has_args) *this = EventFields();
}

void read_fields(simdjson::ondemand::object& object, const TraceVisitor& visitor, EventFields& fields) {
  fields.clear();
  for (auto field : object) {
    if (fields.unwanted) {
      check_json(field.error());
      continue;
    }
    const Key key(field);
    ondemand::value value;
    check_json(field.value().get(value));
    if (key.is(R"(ph")")) {
      const auto kind = text(value, "ph");
      fields.kind = kind.size() == 1 ? kind[0] : '?';
      fields.unwanted = is_flow(fields.kind);
    } else if (key.is(R"(ts")")) {
      fields.start_ns = time(value, "ts");
    } else if (key.is(R"(dur")")) {
      fields.duration_ns = time(value, "dur");
    } else if (key.is(R"(pid")")) {
      fields.pid = identity(value, "pid");
    } else if (key.is(R"(tid")")) {
      fields.tid = identity(value, "tid");
      fields.named_thread = !fields.tid;
    } else if (key.is(R"(cat")")) {
      fields.category = text(value, "cat");
      fields.unwanted |= fields.kind == 'X' && !visitor.wants(fields.category);
    } else if (key.is(R"(name")")) {
      fields.name = text(value, "name");
    } else if (key.is(R"(args")")) {
      read_args(value, fields);
    }
  }
}

void read_args(std::string_view args, ondemand::parser& parser, EventFields& fields) {
  if (has_idle_args(fields) || (fields.category == "kernel" && !are_of_collective(args))) return;
  ondemand::document document;
  check_json(
      parser.iterate(args.data(), args.size(), args.size() + simdjson::SIMDJSON_PADDING).get(document));
  ondemand::object object;
  check_json(document.get_object().get(object));
  read_entries(object, fields);
}

std::optional<std::int64_t> nanoseconds_of(std::string_view microseconds) {
  while (!microseconds.empty() &&
         std::string_view(" \n\r\t").find(microseconds.back()) != std::string_view::npos)
    microseconds.remove_suffix(1);
  const bool negative = microseconds.starts_with('-');
  const char* at = microseconds.data() + (negative ? 1 : 0);
  const char* const end = microseconds.data() + microseconds.size();
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (at == end || !is_digit(*at)) return std::nullopt;
  std::int64_t ns = 0;
  bool overflow = false;
  const auto append = [&](char digit) {
    overflow |= __builtin_mul_overflow(ns, std::int64_t{10}, &ns);
    overflow |= __builtin_add_overflow(ns, std::int64_t{digit - '0'}, &ns);
  };
  for (; at != end && is_digit(*at); ++at) append(*at);
  int decimals = 0;
  if (at != end && *at == '.') {
    if (++at == end || !is_digit(*at)) return std::nullopt;
    for (; at != end && is_digit(*at); ++at, ++decimals) {
      if (decimals < 3)
        append(*at);
      else if (decimals == 3 && *at >= '5')
        overflow |= __builtin_add_overflow(ns, std::int64_t{1}, &ns);
    }
  }
  if (at != end) {  // an exponent is so rare that the rounding of a double is acceptable
    const auto value = parse_number<double>(microseconds);
    if (!value || !(std::abs(*value) < 9.2e15)) return std::nullopt;
    return std::llround(*value * 1e3);
  }
  for (; decimals < 3; ++decimals) append('0');
  if (overflow) return std::nullopt;
  return negative ? -ns : ns;
}

}  // namespace farandole
