#include "farandole/timeline/chrome_trace/event_reader.h"

#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <random>

#include "lane.h"

#include "farandole/base/text/json.h"
#include "farandole/base/text/parse_number.h"

namespace farandole {
namespace {

class NoVisitor : public TraceVisitor {
 public:
  bool wants(std::string_view category) override { return category != "cuda_runtime"; }
};

// Writes events with random contents in the forms of our trace writer and of PyTorch's profiler.
class EventWriter {
 public:
  explicit EventWriter(unsigned seed) : random_(seed) {}

  std::uint64_t below(std::uint64_t most) { return random_() % most; }
  std::string event() { return below(2) == 0 ? own_event() : kineto_event(); }
  std::mt19937_64& random() { return random_; }

 private:
  std::string time() { return fmt::format("{}.{:03}", below(5'000'000'000), below(1000)); }
  std::string place() {
    return fmt::format(R"("pid":{},"tid":{},"ts":{})", below(5), below(3'000'000), time());
  }
  std::string category() {
    return std::string(below(9) == 0 ? "strange" : category_names[below(category_names.size())]);
  }

  // Some of the keys, with counts as values.
  std::string counts(std::initializer_list<const char*> keys) {
    std::string text;
    for (const char* key : keys)
      if (below(2) == 0)
        text += fmt::format(R"({}"{}":{})", text.empty() ? "" : ",", key, below(5'000'000'000));
    return text;
  }
  std::string own_event() {
    const auto kind = below(9);
    if (kind == 3)
      return fmt::format(R"({{"ph":"C","name":"CPU %","pid":{},"ts":{},"args":{{"value":{}}}}})", below(5),
                         time(), time());
    if (kind == 0)
      return fmt::format(R"({{"ph":"i","s":"t","cat":"other","name":"gradient fc{}",{},"args":{{{}}}}})",
                         below(9), place(), counts({"bytes"}));
    if (kind == 1)
      return fmt::format(R"({{"ph":"s","cat":"flow","name":"collective","id":{},{}}})", below(70'000),
                         place());
    if (kind == 2)
      return fmt::format(
          R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":"rank 1 · node1","rank":1,"host":"node\"1"}}}})",
          below(5));
    const auto collective = fmt::format(R"("operation":"allreduce","phase":"{}","sequence":{})", category(),
                                        below(4'000'000'000));
    const auto args =
        below(2) == 0
            ? collective
            : counts({"step", "bytes", "peer", "tag", "ranks", "requests", "queued_us", "correlation"});
    return fmt::format(R"({{"ph":"X","cat":"{}","name":"layer {}",{},"dur":{},"args":{{{}}}}})", category(),
                       below(9), place(), time(), args);
  }

  std::string kineto_event() {
    static constexpr std::array<std::array<std::string_view, 3>, 7> spans = {{
        {"cuda_runtime", "cudaLaunchKernel", R"("External id": 7, "cbid": 211, "correlation": 7)"},
        {"user_annotation", "ProfilerStep#7", R"("External id": 7, "Ev Idx": 7)"},
        {"user_annotation", "gloo:all_reduce", R"("Input type": ["float", ""], "Input Dims": [[5, 2], []])"},
        {"gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", R"("stream": 7, "bytes": 9000)"},
        {"kernel", "gemm<4, void (*)(int)>", R"("stream": 7, "correlation": 7, "grid": [512, 1, 1])"},
        {"kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
         R"("Collective name": "allreduce", "In msg nelems": 7, "Group size": 2, "dtype": "Float", "Seq": 9)"},
        {"cpu_op", "aten::addmm", R"("External id": 7, "Input Dims": [[32, 4], {"a": "}\""}])"},
    }};
    const auto& [category, name, args] = spans[below(spans.size())];
    return fmt::format(
        "{{\n    \"ph\": \"X\", \"cat\": \"{}\", \"name\": \"{}\", \"pid\": {}, \"tid\": {},\n    \"ts\": {}, "
        "\"dur\": {},\n    \"args\": {{\n      {}\n    }}\n  }}",
        category, name, below(9), below(99'999), time(), time(), args);
  }

  std::mt19937_64 random_;
};

std::optional<std::int64_t> nanoseconds_in(const std::string& text) {
  const char* at = text.c_str();
  const auto ns = nanoseconds_of(at);
  return *at == 0 ? ns : std::nullopt;
}

std::string described(const EventFields& event) {
  const TraceSpan& span = event.span;
  if (event.unwanted) return fmt::format("{} unwanted", event.kind);
  std::string text = fmt::format("{} {} ", event.kind, span.category_text);
  const auto add = [&](bool present, auto value) {
    text += present ? fmt::format("'{}' ", value) : std::string("- ");
  };
  const auto add_if = [&](const auto& value) { add(value.has_value(), value.value_or(0)); };
  add(event.has_pid && event.pid_text.empty(), span.pid);
  add(event.has_tid && span.tid >= 0, span.tid);
  add(event.has_start, span.start_ns);
  add(event.has_duration, span.duration_ns);
  add_if(event.rank);
  add_if(event.value);
  add_if(span.step);
  for (const auto& value : {event.sequence, event.communicator, event.bytes, span.message.elements,
                            span.message.ranks, span.message.sequence, span.message.stream, span.correlation})
    add_if(value);
  add(true, span.queued_ns);
  add(span.phase.has_value(), name_of(span.phase.value_or(Category::other)));
  for (const auto& value : {span.name, event.args_name, event.host, span.operation, span.message.collective,
                            span.message.dtype, span.message.process_group})
    add(true, value);
  return text;
}

// The same of an event that another parser has read.
std::string described(const Json& json) {
  EventFields event;
  TraceSpan& span = event.span;
  const Json none = Json::object();
  const auto text = [](const Json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string()
               ? std::string_view(found->get_ref<const std::string&>())
               : std::string_view();
  };
  const auto take = [](const Json& object, const char* key, auto& target) {
    const auto found = object.find(key);
    const bool target_is_signed = std::is_same_v<decltype(target), std::optional<std::int64_t>&>;
    if (found != object.end() && found->is_string()) {
      const auto number = parse_number<std::int64_t>(found->template get_ref<const std::string&>());
      if (number && (*number >= 0 || target_is_signed)) target = *number;
    }
    if (found != object.end() && found->is_number_integer() &&
        (found->is_number_unsigned() || target_is_signed))
      target = found->get<std::int64_t>();
  };
  const auto take_number = [&](const char* key, bool& present, std::int64_t& target) {
    std::optional<std::int64_t> value;
    take(json, key, value);
    present = value.has_value();
    target = value.value_or(0);
  };
  const auto take_time = [&](const char* key, bool& present, std::int64_t& target) {
    const auto found = json.find(key);
    const auto written = found == json.end()  ? std::string()
                         : found->is_string() ? found->get<std::string>()
                                              : found->dump();
    const auto value = nanoseconds_in(written);
    present = value.has_value();
    target = value.value_or(0);
  };
  const auto kind = text(json, "ph");
  event.kind = kind.size() == 1 ? kind[0] : json.contains("ph") ? '?' : '\0';
  event.unwanted = event.kind == 's' || event.kind == 't' || event.kind == 'f';
  if (event.unwanted) return described(event);
  span.category_text = text(json, "cat");
  event.unwanted = event.kind == 'X' && span.category_text == "cuda_runtime";
  if (event.unwanted) return described(event);
  take_number("pid", event.has_pid, span.pid);
  take_number("tid", event.has_tid, span.tid);
  take_time("ts", event.has_start, span.start_ns);
  take_time("dur", event.has_duration, span.duration_ns);
  span.name = text(json, "name");
  const bool idle = span.category_text == "cpu_op" || !json.contains("args") || !json.at("args").is_object();
  const Json& args = idle ? none : json.at("args");
  take(args, "correlation", span.correlation);
  if (span.category_text == "kernel" && !args.contains("Collective name")) return described(event);
  take(args, "rank", event.rank);
  take(args, "step", span.step);
  take(args, "sequence", event.sequence);
  take(args, "communicator", event.communicator);
  take(args, "bytes", event.bytes);
  if (args.contains("queued_us")) span.queued_ns = nanoseconds_in(args.at("queued_us").dump()).value_or(0);
  take(args, "In msg nelems", span.message.elements);
  take(args, "Group size", span.message.ranks);
  take(args, "ranks", span.message.ranks);
  take(args, "Seq", span.message.sequence);
  take(args, "stream", span.message.stream);
  if (const auto value = args.find("value"); event.kind == 'C' && value != args.end() && value->is_number())
    event.value = value->get<double>();
  event.args_name = text(args, "name");
  event.host = text(args, "host");
  span.operation = text(args, "operation");
  span.phase = category_of(text(args, "phase"));
  span.message.collective = text(args, "Collective name");
  span.message.dtype = text(args, "dtype");
  if (span.name == "gloo:all_reduce" && args.contains("Input Dims")) {
    span.message.elements = 10;
    span.message.dtype = "float";
  }
  return described(event);
}

// The text as EventReader needs it.
std::string padded(const std::string& text) {
  return text + std::string(1 + EventReader::padding, '\0');
}

TEST(EventReader, AgreesWithAnotherParser) {
  EventWriter writer(seed(1));
  NoVisitor visitor;
  EventReader reader(visitor);
  for (int round = 0; round < rounds(800, 20'000); ++round) {
    const auto text = writer.event();
    // The same event with other white space, with its keys in another order, and with times as texts.
    const auto json = parse_json(text);
    std::vector<std::string> keys;
    for (const auto& member : json.items()) keys.push_back(member.key());
    std::shuffle(keys.begin(), keys.end(), writer.random());
    auto shuffled = Json::object();
    for (const auto& key : keys) shuffled[key] = json[key];
    auto with_texts = shuffled;
    for (const auto* key : {"ts", "dur", "tid"})
      if (json.contains(key)) with_texts[key] = json[key].dump();
    for (const auto& form : {text, json.dump(), json.dump(3), shuffled.dump(1), with_texts.dump()}) {
      const auto read = padded(form);
      ASSERT_EQ(reader.read(read.data()), read.data() + form.size()) << form;
      EXPECT_EQ(described(reader.fields()), described(json)) << form;
    }
  }
}

// What another parser accepts is read in the same way, or refused because of a field.
TEST(EventReader, AcceptsDamagedEventsAsAnotherParserDoes) {
  EventWriter writer(seed(2));
  NoVisitor visitor;
  EventReader reader(visitor);
  for (int round = 0; round < rounds(5'000, 50'000); ++round) {
    auto text = writer.event();
    if (text.find("Input") != std::string::npos) continue;  // described() does not compute its elements
    for (auto changes = 1 + writer.below(3); changes > 0; --changes)
      text[writer.below(text.size())] = "0123456789.\"{}:,- e\\x\n\xE2[]"[writer.below(25)];
    const auto json = try_parse_json(text);
    const auto read = padded(text);
    try {
      EXPECT_LE(reader.read(read.data()), read.data() + text.size());
      EXPECT_TRUE(!json.is_object() || described(reader.fields()) == described(json)) << text;
    } catch (const EventDamage& damage) {
      EXPECT_TRUE(!json.is_object() || damage.why.find(" is not ") != std::string::npos)
          << damage.why << text;
    }
  }
}

TEST(EventReader, RefusesAllThatIsCut) {
  EventWriter writer(seed(3));
  NoVisitor visitor;
  EventReader reader(visitor);
  for (int round = 0; round < 100; ++round) {
    const auto text = writer.event();
    for (std::size_t length = 0; length < text.size(); ++length)
      EXPECT_THROW(reader.read(padded(text.substr(0, length)).data()), EventDamage);
  }
}

TEST(EventReader, ConvertsTimesExactly) {
  EXPECT_EQ(nanoseconds_in("1234.567"), 1234567);
  EXPECT_EQ(nanoseconds_in("0"), 0);
  EXPECT_EQ(nanoseconds_in("-0.001"), -1);
  EXPECT_EQ(nanoseconds_in("1700000000000000.123"), 1700000000000000123);
  EXPECT_EQ(nanoseconds_in("9223372036854775.807"), INT64_MAX);
  EXPECT_EQ(nanoseconds_in("1.0004"), 1000);
  EXPECT_EQ(nanoseconds_in("1.0005"), 1001);
  EXPECT_EQ(nanoseconds_in("1.5e3"), 1500000);
  for (const auto* wrong : {"", "-", "9223372036854775.808", "99999999999999999999", "1e300", "NaN", "\"1\"",
                            "1.", ".5", "1x", "null"})
    EXPECT_FALSE(nanoseconds_in(wrong)) << wrong;
  std::mt19937_64 random(seed(4));
  for (int i = 0; i < 10'000; ++i) {
    const auto ns = static_cast<std::int64_t>(random() >> (1 + random() % 60));
    const auto digits = std::to_string(1000 + ns % 1000).substr(1);
    ASSERT_EQ(nanoseconds_in(std::to_string(ns / 1000) + "." + digits), ns);
  }
}

}  // namespace
}  // namespace farandole
