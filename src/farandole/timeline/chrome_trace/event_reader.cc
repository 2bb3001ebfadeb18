#include "farandole/timeline/chrome_trace/event_reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <type_traits>
#include <utility>

#include "farandole/base/text/json.h"
#include "farandole/base/text/parse_number.h"

namespace farandole {
namespace {

// 73 years, so that the sum or difference of a few times fits into 64 bits.
constexpr std::int64_t max_time_ns = std::int64_t{1} << 61;

// Eight characters at once. A character that is looked for has its highest bit set in the result; only
// characters behind the first such one may have it wrongly. Source: "Determine if a word has a byte equal to
// n", Bit Twiddling Hacks.
constexpr std::uint64_t each(char c) {
  return 0x0101010101010101u * static_cast<unsigned char>(c);
}
std::uint64_t word_at(const char* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return std::endian::native == std::endian::little ? word : __builtin_bswap64(word);
}
std::uint64_t equal_to(char c, std::uint64_t word) {
  const std::uint64_t difference = word ^ each(c);
  return (difference - each(1)) & ~difference & each('\x80');
}
// The end of a text, or what must not be in it as it is: escapes, control characters, and what may
// not be UTF-8.
std::uint64_t ends_of_plain_text(std::uint64_t word) {
  const std::uint64_t control = (word - each(' ')) & ~word & each('\x80');
  return equal_to('"', word) | equal_to('\\', word) | control | (word & each('\x80'));
}
// Brackets and texts, and the byte 0. Pairs of brackets differ in one bit.
std::uint64_t ends_of_plain_json(std::uint64_t word) {
  const std::uint64_t lower = word | each(' ');
  return equal_to('{', lower) | equal_to('}', lower) | equal_to('"', word) | equal_to('\0', word);
}

// Goes to the next character that `ends` finds.
template <class Ends>
const char* skip_to(const char* at, Ends ends) {
  auto found = ends(word_at(at));
  while (found == 0) found = ends(word_at(at += 8));
  return at + std::countr_zero(found) / 8;
}

// Apart from the code that reads, because it is large and hardly ever runs.
[[noreturn, gnu::noinline]] void damaged(const char* what, const char* why = "") {
  throw EventDamage{std::string(what) + why};
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Goes over JSON text that ends with a byte 0, behind which EventReader::padding bytes must be readable.
// Loops use a copy of `at_`, because the compiler would otherwise assume that the text changes it.
class JsonCursor {
 public:
  JsonCursor(const char* at, std::deque<std::string>& unescaped) : at_(at), unescaped_(unescaped) {}

  const char* at() const { return at_; }
  void go_back(const char* to) { at_ = to; }

  // The next character that is not white space.
  char next() {
    const char* at = at_;
    while (*at <= ' ' && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t')) ++at;
    at_ = at;
    return *at;
  }
  bool skip(char c) {
    if (next() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!skip(c)) damaged("a bracket, colon or comma is missing");
  }

  // Calls `take` at each key. It must find out with key() which one it is, and read the value; or pass over
  // both with skip_member(). Once it returns false, the rest of the object is passed over.
  template <class Take>
  void read_object(Take&& take) {
    expect('{');
    if (skip('}')) return;
    do {
      if (next() != '"') damaged("there is no key where one should be");
      if (!take()) return skip_brackets(1);
    } while (skip(','));
    expect('}');
  }
  // Passes the key if it is this one. Its length is known to the compiler, which compares it as numbers.
  template <std::size_t n>
  bool key(const char (&name)[n]) {
    static_assert(n <= EventReader::padding);
    constexpr bool is_long = n > 9;  // Then the comparison calls a function.
    if ((is_long && at_[1] != name[0]) || std::memcmp(at_ + 1, name, n - 1) != 0 || at_[n] != '"')
      return false;
    at_ += n + 1;
    expect(':');
    return true;
  }
  void skip_member() {
    skip_text();
    expect(':');
    skip_value();
  }
  // `take` must read one element.
  template <class Take>
  void read_array(Take&& take) {
    expect('[');
    if (skip(']')) return;
    do take();
    while (skip(','));
    expect(']');
  }

  // Reads a text, which is next.
  std::string_view text() {
    const auto token = skip_text();
    if (!has_escapes_) return token.substr(1, token.size() - 2);
    const auto json = try_parse_json(token);
    if (!json.is_string()) damaged("a text has damaged escapes or is not UTF-8");
    return unescaped_.emplace_back(json.get<std::string>());
  }
  std::string_view text(const char* name) {
    if (next() != '"') damaged(name, " is not a text");
    return text();
  }

  // The characters up to the end of a number or word.
  std::string_view token() {
    next();
    const char* at = at_;
    while (!ends_value(*at)) ++at;
    const char* const begin = std::exchange(at_, at);
    return {begin, static_cast<std::size_t>(at - begin)};
  }
  std::int64_t integer(const char* name) {
    return number(name, " is not an integer of 64 bits", [&]() -> std::optional<std::int64_t> {
      const bool negative = *at_ == '-';
      if (negative) ++at_;
      const auto magnitude = digits();
      if (!magnitude || *magnitude > INT64_MAX) return std::nullopt;
      const auto value = static_cast<std::int64_t>(*magnitude);
      return negative ? -value : value;
    });
  }
  std::uint64_t count(const char* name) {
    return number(name, " is not a count of 64 bits", [&] { return digits(); });
  }
  std::int64_t time(const char* name) {
    return number(name, " is not a time that 64 bits hold", [&]() -> std::optional<std::int64_t> {
      const auto ns = nanoseconds_of(at_);
      return ns && *ns <= max_time_ns && *ns >= -max_time_ns ? ns : std::nullopt;
    });
  }

  // Passes over a value of any type, and returns it.
  std::string_view skip_value() {
    const char c = next();
    if (c == '"') return skip_text();
    const char* const begin = at_;
    if (c == '{' || c == '[') {
      ++at_;
      skip_brackets(1);
    } else if (token().empty()) {
      damaged("there is no value where one should be");
    }
    return {begin, static_cast<std::size_t>(at_ - begin)};
  }

 private:
  // Returns the text with its quotation marks.
  std::string_view skip_text() {
    const char* const begin = at_;
    has_escapes_ = false;
    for (const char* at = begin + 1;;) {
      at = skip_to(at, ends_of_plain_text);
      const char c = *at++;
      if (c >= 0 && c < ' ') damaged("a text is not closed");
      if (c == '"') {
        at_ = at;
        return {begin, static_cast<std::size_t>(at - begin)};
      }
      has_escapes_ = true;
      if (c == '\\' && *at != 0) ++at;
    }
  }

  // Goes behind the bracket that closes the outermost of `depth` open ones.
  void skip_brackets(int depth) {
    while (depth > 0) {
      at_ = skip_to(at_, ends_of_plain_json);
      switch (*at_) {
        case 0:
          damaged("a bracket is not closed");
        case '"':
          skip_text();
          break;
        case '{':
        case '[':
          ++depth;
          ++at_;
          break;
        default:  // a closing one
          --depth;
          ++at_;
      }
    }
  }

  static bool ends_value(char c) { return c == ',' || c == '}' || c <= ' ' || c == ']'; }

  // Calls `read` at a number. Some programs write numbers as texts.
  template <class Read>
  typename std::invoke_result_t<Read>::value_type number(const char* name, const char* why, Read read) {
    const bool is_text = skip('"');
    const auto value = read();
    if (!value || !(is_text ? *at_ == '"' : ends_value(*at_))) damaged(name, why);
    if (is_text) ++at_;
    return *value;
  }
  // Reads a number of up to 19 digits.
  std::optional<std::uint64_t> digits() {
    constexpr std::ptrdiff_t most = 19;
    const char* at = at_;
    std::uint64_t value = 0;
    for (; is_digit(*at); ++at) value = 10 * value + static_cast<std::uint64_t>(*at - '0');
    const auto count = at - std::exchange(at_, at);
    return count > 0 && count <= most ? std::optional(value) : std::nullopt;
  }

  const char* at_;
  std::deque<std::string>& unescaped_;
  bool has_escapes_ = false;  // in the text that was passed last; or characters outside of ASCII
};

// Other programs identify some processes and threads by texts: "4242", "stream 7". A text that is no number
// gets a negative number, which depends on nothing else, and is returned.
std::string_view read_identity(JsonCursor& json, const char* name, bool& present, std::int64_t& target) {
  const char c = json.next();
  present = c == '-' || is_digit(c) || c == '"';
  if (!present) return json.skip_value().substr(0, 0);
  if (c != '"') {
    target = json.integer(name);
    return {};
  }
  const auto text = json.text();
  if (const auto number = parse_number<std::int64_t>(text)) {
    target = *number;
    return {};
  }
  target = -1 - static_cast<std::int64_t>(std::hash<std::string_view>{}(text) >> 2);
  return text;
}

// Other programs use these keys for their own purposes, so values of another type are ignored.
void take_if(JsonCursor& json, std::string_view& target) {
  if (json.next() == '"')
    target = json.text();
  else
    json.skip_value();
}
template <class Number>
void take_if(JsonCursor& json, std::optional<Number>& target) {
  auto text = json.skip_value();
  if (text.size() > 2 && text.front() == '"') text = text.substr(1, text.size() - 2);
  if (const auto value = parse_number<Number>(text)) target = value;
}

// The number of elements of tensors with these shapes: 10 for [[2,3],[4]] and for the list
// of tensor lists [[[2,3],[4]]].
std::uint64_t elements_in(JsonCursor& json, int depth = 0) {
  std::uint64_t sum = 0;
  std::uint64_t product = 0;
  if (depth > 3 || json.next() != '[') {
    json.skip_value();
    return 0;
  }
  json.read_array([&] {
    if (json.next() == '[')
      sum += elements_in(json, depth + 1);
    else if (const auto size = parse_number<std::uint64_t>(json.skip_value()))
      product = (product == 0 ? 1 : product) * std::min<std::uint64_t>(*size, 1U << 31);
  });
  return sum + product;
}

void take_first(JsonCursor& json, std::string_view& target) {
  if (json.next() != '[') {
    json.skip_value();
    return;
  }
  json.read_array([&] {
    if (target.empty())
      take_if(json, target);
    else
      json.skip_value();
  });
}

// Events of PyTorch's profiler whose many arguments are not needed.
constexpr std::array<std::string_view, 5> with_idle_args = {"cpu_op", "python_function", "ac2g", "fwdbwd",
                                                            "gpu_user_annotation"};

// True if a collective launched the GPU kernel. PyTorch's profiler says so in the arguments, whatever
// the kernel's name is.
bool are_of_collective(std::string_view args) {
  return args.find("Collective name\"") != std::string_view::npos;
}

// The correlation, which is found without parsing the other arguments.
std::optional<std::uint64_t> correlation_in(std::string_view args) {
  constexpr std::string_view key = "correlation\":";
  const auto found = args.find(key);
  if (found == std::string_view::npos || found == 0 || args[found - 1] != '"') return std::nullopt;
  args.remove_prefix(found + key.size());
  args.remove_prefix(std::min(args.find_first_not_of(" \t\n\r"), args.size()));
  const auto end = std::min(args.find_first_not_of("0123456789"), args.size() - 1);
  if (std::string_view(",} \t\n\r").find(args[end]) == std::string_view::npos) return std::nullopt;
  return parse_number<std::uint64_t>(args.substr(0, end));
}

// Arguments that few events have.
void read_rare_argument(JsonCursor& json, EventFields& fields) {
  fields.has_rare_args = true;
  const bool is_of_library = fields.span.name.find(':') != std::string_view::npos;  // "gloo:all_reduce"
  if (json.key("name"))
    take_if(json, fields.args_name);
  else if (fields.kind == 'C' && json.key("value"))
    take_if(json, fields.value);
  else if (json.key("rank"))
    take_if(json, fields.rank);
  else if (json.key("host"))
    take_if(json, fields.host);
  else if (json.key("Collective name"))
    take_if(json, fields.span.message.collective);
  else if (json.key("In msg nelems"))
    take_if(json, fields.span.message.elements);
  else if (json.key("dtype"))
    take_if(json, fields.span.message.dtype);
  else if (json.key("Process Group Name"))
    take_if(json, fields.span.message.process_group);
  else if (json.key("Seq"))
    take_if(json, fields.span.message.sequence);
  else if (json.key("stream"))
    take_if(json, fields.span.message.stream);
  else if (json.key("direction"))
    take_if(json, fields.span.message.direction);
  else if (json.key("Group size") || json.key("ranks"))
    take_if(json, fields.span.message.ranks);
  else if (is_of_library && json.key("Input Dims"))
    fields.span.message.elements = elements_in(json);
  else if (is_of_library && json.key("Input type"))
    take_first(json, fields.span.message.dtype);
  else
    json.skip_member();
}

void read_argument(JsonCursor& json, EventFields& fields) {
  if (json.key("step")) {
    fields.span.step = json.integer("step");
  } else if (json.key("operation")) {
    fields.span.operation = json.text("operation");
  } else if (json.key("communicator")) {
    fields.communicator = json.count("communicator");
  } else if (json.key("sequence")) {
    fields.sequence = json.count("sequence");
  } else if (json.key("bytes")) {
    fields.bytes = json.count("bytes");
  } else if (json.key("phase")) {
    std::string_view phase;
    take_if(json, phase);
    fields.span.phase = category_of(phase);
  } else if (json.key("queued_us")) {
    fields.span.queued_ns = json.time("queued_us");
  } else if (json.key("correlation")) {
    take_if(json, fields.span.correlation);
  } else {
    read_rare_argument(json, fields);
  }
}

void read_args(JsonCursor& json, const TraceCategory& category, EventFields& fields) {
  if (category.has_idle_args || json.next() != '{') {
    json.skip_value();
    return;
  }
  const char* const begin = json.at();
  if (category.is_kernel || category.is_runtime) {
    const auto args = json.skip_value();
    fields.span.correlation = correlation_in(args);
    if (category.is_runtime || !are_of_collective(args)) return;
    json.go_back(begin);
  }
  json.read_object([&] {
    read_argument(json, fields);
    return true;
  });
}

// Arrows between events. Other programs write one or two of them per event.
bool is_flow(char kind) {
  return kind == 's' || kind == 't' || kind == 'f';
}

}  // namespace

void EventFields::clear() {
  kind = 0;
  has_pid = has_tid = has_start = has_duration = unwanted = false;
  pid_text = {};
  span.category = Category::other;
  span.category_text = span.name = span.operation = {};
  span.step.reset();
  span.phase.reset();
  span.correlation.reset();
  span.queued_ns = 0;
  sequence.reset();
  communicator.reset();
  bytes.reset();
  if (!has_rare_args) return;
  has_rare_args = false;
  span.message = {};
  args_name = host = {};
  rank.reset();
  value.reset();
}

// Found by length and ends of the text, because the same few categories come again and again.
const TraceCategory& EventReader::category_named(std::string_view text) {
  const std::size_t place = text.empty() ? 0
                                         : text.size() + static_cast<unsigned char>(text.front()) * 7u +
                                               static_cast<unsigned char>(text.back()) * 3u;
  TraceCategory& known = categories_[place % categories_.size()];
  if (known.text != text || !known.used)
    known = {.used = true,
             .text = std::string(text),
             .category = category_of(text).value_or(Category::other),
             .wanted = visitor_.wants(text),
             .prefix = std::string(visitor_.wanted_prefix(text)),
             .has_idle_args =
                 std::find(with_idle_args.begin(), with_idle_args.end(), text) != with_idle_args.end(),
             .is_runtime = text == "cuda_runtime" || text == "cuda_driver",
             .is_kernel = text == "kernel"};
  return known;
}

const char* EventReader::read(const char* text) {
  fields_.clear();
  if (!unescaped_.empty()) unescaped_.clear();
  const TraceCategory* category = nullptr;  // before the event has named it
  const char* args = nullptr;               // that came before what they depend on
  bool has_name = false;
  JsonCursor json(text, unescaped_);
  json.read_object([&] {
    if (json.key("ph")) {
      const auto kind = json.text("ph");
      fields_.kind = kind.size() == 1 ? kind[0] : '?';
      fields_.unwanted = is_flow(fields_.kind);
    } else if (json.key("ts")) {
      fields_.span.start_ns = json.time("ts");
      fields_.has_start = true;
    } else if (json.key("dur")) {
      fields_.span.duration_ns = json.time("dur");
      fields_.has_duration = true;
    } else if (json.key("pid")) {
      fields_.pid_text = read_identity(json, "pid", fields_.has_pid, fields_.span.pid);
    } else if (json.key("tid")) {
      read_identity(json, "tid", fields_.has_tid, fields_.span.tid);
    } else if (json.key("cat")) {
      fields_.span.category_text = json.text("cat");
      category = &category_named(fields_.span.category_text);
      fields_.span.category = category->category;
      fields_.unwanted |= fields_.kind == 'X' && !category->wanted;
    } else if (json.key("name")) {
      fields_.span.name = json.text("name");
      has_name = true;
      fields_.unwanted |= fields_.kind == 'X' && category != nullptr && !category->wants(fields_.span.name);
    } else if (json.key("args")) {
      if (fields_.kind != 0 && has_name && (category != nullptr || fields_.kind != 'X')) {
        read_args(json, category != nullptr ? *category : category_named(""), fields_);
      } else {
        json.next();
        args = json.at();
        json.skip_value();
      }
    } else {
      json.skip_member();
    }
    return !fields_.unwanted;
  });
  const char* const behind = json.at();
  if (category == nullptr) category = &category_named("");
  fields_.unwanted |= fields_.kind == 'X' && (!category->wanted || !category->wants(fields_.span.name));
  if (args != nullptr && !fields_.unwanted) {
    json.go_back(args);
    read_args(json, *category, fields_);
  }
  return behind;
}

std::optional<std::int64_t> nanoseconds_of(const char*& text) {
  const char* at = text;
  const bool negative = *at == '-';
  if (negative) ++at;
  std::uint64_t ns = 0;
  const auto append_digit = [&] { ns = 10 * ns + static_cast<std::uint64_t>(*at - '0'); };
  const char* const first_digit = at;
  for (; is_digit(*at); ++at) append_digit();
  const auto whole_digits = at - first_digit;
  if (whole_digits == 0) return std::nullopt;
  int decimals = 0;
  bool rounds_up = false;
  if (*at == '.') {
    ++at;
    if (!is_digit(*at)) return std::nullopt;
    for (; is_digit(*at); ++at, ++decimals) {
      if (decimals < 3)
        append_digit();
      else if (decimals == 3)
        rounds_up = *at >= '5';
    }
  }
  if (*at == 'e' || *at == 'E') {  // so rare that the rounding of a double is acceptable
    while (is_digit(*at) || *at == 'e' || *at == 'E' || *at == '+' || *at == '-') ++at;
    const auto value = parse_number<double>({text, static_cast<std::size_t>(at - text)});
    if (!value || !(std::abs(*value) < 9.2e15)) return std::nullopt;
    text = at;
    return std::llround(*value * 1e3);
  }
  for (; decimals < 3; ++decimals) ns *= 10;
  if (rounds_up) ++ns;
  constexpr std::ptrdiff_t most_digits = 16;  // with three decimals, 64 bits hold them
  if (whole_digits > most_digits || ns > INT64_MAX) return std::nullopt;
  text = at;
  return negative ? -static_cast<std::int64_t>(ns) : static_cast<std::int64_t>(ns);
}

}  // namespace farandole
