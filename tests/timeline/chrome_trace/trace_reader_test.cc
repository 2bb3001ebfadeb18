#include "farandole/timeline/chrome_trace/trace_reader.h"

#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <random>
#include <unistd.h>
#include <zlib.h>

#include "lane.h"
#include "mutation.h"

#include "farandole/base/error.h"

namespace farandole {
namespace {

using namespace ::testing;

class Recorded : public TraceVisitor {
 public:
  void process(const TraceProcess& event) override {
    texts.push_back("process " + std::to_string(event.pid) + " rank " +
                    std::to_string(event.rank.value_or(-1)) + " " + std::string(event.host));
  }
  void thread(const TraceThread& event) override { texts.push_back("thread " + std::string(event.name)); }
  void span(const TraceSpan& event) override {
    texts.push_back(std::string(name_of(event.category)) + " " + std::string(event.name) + " " +
                    std::to_string(event.start_ns) + "+" + std::to_string(event.duration_ns));
    last = event;
    operation = event.operation;
  }
  void instant(const TraceInstant& event) override { texts.push_back("instant " + std::string(event.name)); }
  void counter(const TraceCounter& event) override {
    texts.push_back(fmt::format("counter {} {} {}", event.name, event.pid, event.value));
  }

  std::vector<std::string> texts;
  TraceSpan last;
  std::string operation;
};

class TraceReader : public ::testing::Test {
 protected:
  TraceReader() {
    std::string pattern = (std::filesystem::temp_directory_path() / "farandole-reader-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~TraceReader() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path file() const { return folder_ / "trace"; }
  void write(const std::string& text) const {
    std::filesystem::remove(
        file());  // ext4 writes a truncated file back to disk when it is closed, a new one later
    std::ofstream(file(), std::ios::binary) << text;
  }
  void write_gzip(const std::string& text) const {
    gzFile stream = gzopen(file().c_str(), "wb6");
    gzwrite(stream, text.data(), static_cast<unsigned>(text.size()));
    gzclose(stream);
  }
  std::string bytes() const {
    std::ifstream stream(file(), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  TraceSummary read(const std::string& text) {
    write(text);
    return read_trace(file(), recorded_);
  }
  std::string error_of(const std::string& text) {
    try {
      read(text);
    } catch (const CorruptInput& error) {
      return error.what();
    }
    return "no CorruptInput";
  }

  std::filesystem::path folder_;
  Recorded recorded_;
};

const std::string forward =
    R"({"ph":"X","cat":"forward","name":"f","pid":1,"tid":1000000,"ts":10.001,"dur":5.000,"args":{"step":3}})";
const std::string backward =
    R"({"ph":"X","cat":"backward","name":"b","pid":1,"tid":1000000,"ts":15.001,"dur":0.999})";

TEST_F(TraceReader, ReadsEveryKindOfEvent) {
  const auto summary = read(
      R"({"displayTimeUnit":"ms","otherData":{"farandole_trace":1,"ranks":2,"clock_residual_us":[0.0,1.5]},
"traceEvents":[
{"ph":"M","name":"process_name","pid":2,"args":{"name":"rank 1 · node7","rank":1,"host":"node7"}},
{"ph":"M","name":"process_sort_index","pid":2,"args":{"sort_index":1}},
{"ph":"M","name":"thread_name","pid":2,"tid":1001000,"args":{"name":"training"}},
)" + forward +
      R"(,
{"ph":"X","cat":"communication","name":"bucket \"0\"","pid":2,"tid":1001001,"ts":20.5,"dur":1,"args":{"step":3,"operation":"allreduce","communicator":2,"sequence":17,"bytes":1048576}},
{"ph":"s","cat":"flow","name":"collective","id":1,"pid":2,"tid":1001001,"ts":20.5},
{"ph":"C","name":"CPU %","pid":2,"ts":30,"args":{"value":98.5}},
{"ph":"i","s":"t","cat":"other","name":"mark","pid":2,"tid":1001000,"ts":31}
]})");
  EXPECT_THAT(recorded_.texts,
              ElementsAre("process 2 rank 1 node7", "thread training", "forward f 10001+5000",
                          "communication bucket \"0\" 20500+1000", "counter CPU % 2 98.5", "instant mark"));
  EXPECT_EQ(recorded_.operation, "allreduce");
  ASSERT_TRUE(recorded_.last.collective);
  EXPECT_EQ(recorded_.last.collective->communicator, 2);
  EXPECT_EQ(recorded_.last.collective->sequence, 17U);
  EXPECT_EQ(recorded_.last.collective->bytes, 1048576U);
  EXPECT_EQ(recorded_.last.step, 3);
  EXPECT_EQ(summary.header.farandole_trace, 1);
  EXPECT_EQ(summary.header.ranks, 2);
  EXPECT_THAT(summary.header.clock_residual_us, ElementsAre(0.0, 1.5));
  EXPECT_EQ(summary.events, 8U);
  EXPECT_EQ(summary.unused, 2U);
  EXPECT_TRUE(summary.warnings.empty());
  EXPECT_EQ(summary.bytes, bytes().size());
}

TEST_F(TraceReader, TakesAllFormsOfTheArray) {
  for (const auto& text : {"[" + forward + "," + backward + "]", "[" + forward + ",\n" + backward,
                           "[" + forward + "," + backward + ",\n", "[" + forward + "," + backward + ",{}]",
                           R"({"schemaVersion":1,"deviceProperties":[{"id":0,"x":"]}"}],"traceEvents":[)" +
                               forward + "," + backward + R"(],"traceName":"x","otherData":{"ranks":4}})",
                           " \n{\"traceEvents\" : [ " + forward + " , " + backward + " ] } \n"}) {
    recorded_.texts.clear();
    const auto summary = read(text);
    EXPECT_THAT(recorded_.texts, ElementsAre("forward f 10001+5000", "backward b 15001+999")) << text;
    EXPECT_THAT(summary.warnings, SizeIs(0)) << text;
  }
}

TEST_F(TraceReader, TellsGzipByContentAndReadsConcatenatedMembers) {
  const std::string text = R"({"traceEvents":[)" + forward + "," + backward + "]}";
  write_gzip(text.substr(0, 60));
  const auto first = bytes();
  write_gzip(text.substr(60));
  write(first + bytes());
  EXPECT_EQ(read_trace(file(), recorded_).events, 2U);
}

TEST_F(TraceReader, ReadsOtherDataBehindTheEvents) {
  EXPECT_EQ(read(R"({"traceEvents":[)" + forward + R"(],"otherData":{"ranks":4}})").header.ranks, 4);
}

TEST_F(TraceReader, LeavesDamagedEventsOutAndNamesTheFirst) {
  const std::vector<std::string> damaged = {
      R"({"ph":"X","cat":"forward","name":"f","pid":1,"tid":1,"ts":NaN,"dur":1})",
      R"({"ph":"X","cat":"forward","name":"f","pid":1,"tid":1,"ts":1e99,"dur":1})",
      R"({"ph":"X","cat":"forward","name":"f","pid":1,"tid":1,"ts":5000000000000000,"dur":1})",
      R"({"ph":"X","cat":"forward","name":"f","pid":1,"tid":1,"ts":1,"dur":-1})",
      R"({"ph":"X","cat":"forward","name":"f","pid":1,"tid":1,"ts":1})",
      R"({"ph":"X","cat":"forward","name":"f","pid":1,"tid":1,"ts":"1 s","dur":1})",
      R"({"ph":"X","cat":"forward","name":"f","pid":1,"tid":1,"ts":null,"dur":1})",
      R"({"ph":"X","cat":"forward","name":"f","pid":1,"tid":1,"dur":1})",
      R"({"ph":"X","cat":"communication","name":"f","pid":1,"tid":1,"ts":1,"dur":1,"args":{"sequence":5000000000}})",
      R"({"ph":"X","cat":"communication","name":"f","pid":1,"tid":1,"ts":1,"dur":1,"args":{"sequence":1,"communicator":65536}})",
      R"({"ph":"X","cat":"communication","name":"f","pid":1,"tid":1,"ts":1,"dur":1,"args":{"sequence":-1}})",
      R"({"ph":"X","cat":"forward","name":"f","pid":99999999999999999999,"tid":1,"ts":1,"dur":1})",
      "{\"ph\":\"X\",\"cat\":\"forward\",\"name\":\"\xff\xfe\",\"pid\":1,\"tid\":1,\"ts\":1,\"dur\":1}",
      R"({"ph":"X" "cat":"forward"})",
      R"({"ph":"X","cat":"forward","name":"f","pid":1,"tid":1,"ts":1,"dur":1,"args":{"a":[1})",
      R"({"ph":"X","cat":"forward","name":"unclosed)",
      R"({"ph":"X","cat":"forward","name":"f","pid":1,"tid":1,"ts":1,"dur":1,"args":{"step":1.5}})",
      R"({"name":"no kind"})"};
  for (const auto& event : damaged) {
    recorded_.texts.clear();
    const auto summary = read("{\"traceEvents\":[\n" + forward + ",\n" + event + ",\n" + backward + "\n]}");
    EXPECT_THAT(recorded_.texts, ElementsAre("forward f 10001+5000", "backward b 15001+999")) << event;
    EXPECT_EQ(summary.damaged, 1U) << event;
    ASSERT_THAT(summary.warnings, SizeIs(1)) << event;
    EXPECT_THAT(summary.warnings[0], HasSubstr("byte " + std::to_string(19 + forward.size())));
    EXPECT_THAT(summary.warnings[0], HasSubstr(file().string()));
  }
}

TEST_F(TraceReader, ReadsTextsAsIdentitiesAndTimesBehindAByteOrderMark) {
  const auto summary = read("\xEF\xBB\xBF[" + forward + R"(,
{"dur":"5.5","ts":"1.25e1","tid":"stream 7","pid":"4242","name":"k","cat":"data","ph":"X"},
{"dur":1,"ts":2,"tid":"stream 8","pid":"host a","name":"k","cat":"data","ph":"X"},
{"dur":1,"ts":3,"tid":"stream 7","pid":"host a","name":"k","cat":"data","ph":"X"},
{"args":{"rank":"3","name":"a"},"pid":"host a","name":"process_name","ph":"M"},
{"args":{"value":"98.5"},"name":"CPU %","ts":30,"pid":2,"ph":"C"}])");
  EXPECT_TRUE(summary.warnings.empty());
  ASSERT_THAT(recorded_.texts, SizeIs(7));
  EXPECT_EQ(recorded_.texts[1], "data k 12500+5500");
  EXPECT_THAT(recorded_.texts[2], ::testing::MatchesRegex("process -[0-9]+ rank -1 "));
  EXPECT_EQ(recorded_.texts[3], "data k 2000+1000");
  const auto id = recorded_.texts[2].substr(0, recorded_.texts[2].find(" rank"));
  EXPECT_EQ(recorded_.texts[5], id + " rank 3 ");
  EXPECT_EQ(recorded_.texts[6], "counter CPU % 2 98.5");
}

TEST_F(TraceReader, IgnoresWhatOtherProgramsWrite) {
  const auto summary = read("[" + forward + R"(,
{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":2,"args":{"name":5,"rank":"x","value":"y","host":1}},
{"ph":"B","name":"NEGOTIATE","pid":1,"ts":3},{"ph":"E","pid":1,"ts":4},
{"ph":"M","name":"process_labels","pid":0,"args":{"labels":"CPU"}}])");
  EXPECT_TRUE(summary.warnings.empty());
  EXPECT_THAT(recorded_.texts, ElementsAre("forward f 10001+5000", "other k 1000+2000"));
}

TEST_F(TraceReader, AnalyzesWhatIsBeforeACutAndSaysWhereItIs) {
  const std::string text = "{\"traceEvents\":[\n" + forward + ",\n" + backward + "\n]}";
  for (std::size_t length = text.find(backward); length + 1 < text.size(); ++length) {
    recorded_.texts.clear();
    const auto summary = read(text.substr(0, length));
    ASSERT_THAT(summary.warnings, SizeIs(1)) << length;
    EXPECT_THAT(summary.warnings[0], HasSubstr("cut off"));
    EXPECT_THAT(summary.warnings[0], HasSubstr("byte "));
    ASSERT_EQ(recorded_.texts.size(), length < text.size() - 3 ? 1U : 2U) << length;
  }
}

TEST_F(TraceReader, NamesTruncatedAndDamagedGzip) {
  std::string text = "{\"traceEvents\":[\n" + forward;
  for (int i = 0; i < 20'000; ++i)
    text +=
        ",\n"
        R"({"ph":"X","cat":"backward","name":"b","pid":1,"tid":1,"ts":)" +
        std::to_string(i * 7919 % 104729) + R"(,"dur":1})";
  write_gzip(text + "]}");
  const auto whole = bytes();
  write(whole.substr(0, whole.size() / 2));
  const auto cut = read_trace(file(), recorded_);
  ASSERT_THAT(cut.warnings, SizeIs(1));
  EXPECT_THAT(cut.warnings[0], HasSubstr("gzip data is truncated"));
  EXPECT_GT(cut.events, 5'000U);
  EXPECT_LT(cut.events, 15'000U);
  auto flipped = whole;
  for (std::size_t i = 0; i < 64; ++i)
    flipped[flipped.size() / 2 + i] = static_cast<char>(~flipped[flipped.size() / 2 + i]);
  write(flipped);
  const auto damaged = read_trace(file(), recorded_);
  ASSERT_GE(damaged.warnings.size(), 1U);
  EXPECT_THAT(damaged.warnings.back(), HasSubstr("gzip data is damaged"));
}

TEST_F(TraceReader, RefusesWhatIsNoTrace) {
  EXPECT_THAT(error_of(""), HasSubstr("is empty"));
  EXPECT_THAT(error_of("  \n"), HasSubstr("is empty"));
  EXPECT_THAT(error_of("hello"), HasSubstr("not a Chrome trace"));
  EXPECT_THAT(error_of("[]"), HasSubstr("no events"));
  EXPECT_THAT(error_of("{}"), HasSubstr("no array \"traceEvents\""));
  EXPECT_THAT(error_of(R"({"traceEvents":5})"), HasSubstr("no array \"traceEvents\""));
  EXPECT_THAT(error_of(R"({"traceEvents":[5]})"), HasSubstr("no event where one should begin at byte 16"));
  EXPECT_THAT(error_of("{\"a\":\"unclosed"), HasSubstr("cut off"));
  EXPECT_THAT(error_of(R"([{"ph":1}])"), HasSubstr("ph is not a text"));
  EXPECT_THAT(error_of("\x1f\x8b\x08"), HasSubstr("trace "));
  EXPECT_THROW(read_trace(folder_ / "missing", recorded_), UserError);
  EXPECT_THROW(read_trace(folder_, recorded_), UserError);
}

TEST_F(TraceReader, ReadsEventsAcrossWindowBounds) {
  std::mt19937 random(seed(5));
  std::string text = "[";
  std::size_t total = 0;
  std::vector<std::size_t> lengths;
  while (total < 5'000'000) {
    const std::size_t length = random() % 10 == 0 ? random() % 400'000 : random() % 3'000;
    std::string name;
    while (name.size() < length)
      name += random() % 50 == 0 ? "\\\"{[" : random() % 50 == 0 ? "\\\\" : "name]}";
    text += (lengths.empty() ? "" : ",\n") + std::string(R"({"ph":"X","cat":"data","name":")") + name +
            R"(","pid":1,"tid":1,"ts":1,"dur":)" + std::to_string(lengths.size()) + "}";
    lengths.push_back(length);
    total += length;
  }
  const auto summary = read(text + "]");
  EXPECT_TRUE(summary.warnings.empty());
  ASSERT_EQ(recorded_.texts.size(), lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i)
    EXPECT_TRUE(recorded_.texts[i].ends_with(" 1000+" + std::to_string(1000 * i)));
}

// Events are read one after the other, and again alone if they are damaged. The result must be the same.
TEST_F(TraceReader, ReadsDamageWithinWindowsAsAlone) {
  const std::vector<std::string> odd = {
      R"({"ph":"X","cat":"data","name":"}, {","pid":1,"tid":1,"ts":1,"dur":1,"args":{"l":[{"a":1}, {"b":2}]}})",
      R"({"ph":"X","cat":"data","name":"no time","pid":1,"tid":1,"dur":1})",
      "{\"ph\":\"X\",\"cat\":\"data\",\"name\":\"\xff\",\"pid\":1,\"tid\":1,\"ts\":1,\"dur\":1}",
      R"({"ph":"X","cat":"data" "name":"no comma"})",
      R"({"ph":"X","cat":"data","name":"unclosed)",
      R"({"ph":"X","cat":"data","name":"open","args":{"a":[1}})",
      R"(7)",
      forward + " x"};
  for (std::size_t i = 0; i < odd.size(); ++i) {
    for (const std::size_t before : {0, 1, 3'000}) {
      std::string text = "{\"traceEvents\":[\n";
      for (std::size_t n = 0; n < before; ++n) text += forward + ",\n";
      text += odd[i] + ",\n";
      for (std::size_t n = 0; n < 3'000; ++n) text += backward + (n + 1 < 3'000 ? ",\n" : "\n");
      recorded_.texts.clear();
      const auto summary =
          read(text + "],\"more\":[{\"ph\":\"X\"}, {\"ph\":\"X\"}, {}],\"otherData\":{\"ranks\":3}}");
      const bool sound = i == 0;
      const bool counts_twice = i == 7;  // the event is undamaged, but the text after it is not
      EXPECT_EQ(summary.damaged, sound ? 0U : 1U) << odd[i];
      EXPECT_EQ(summary.events, before + 3'000 + (sound || counts_twice ? 1 : 0))
          << odd[i] << " behind " << before;
      EXPECT_EQ(summary.header.ranks, 3);
      if (!sound) {
        ASSERT_THAT(summary.warnings, SizeIs(1));
        const auto at = 17 + before * (forward.size() + 2) + (counts_twice ? forward.size() + 1 : 0);
        EXPECT_THAT(summary.warnings[0], HasSubstr("byte " + std::to_string(at) + ":")) << odd[i];
      }
    }
  }
}

TEST_F(TraceReader, TakesUnknownClocks) {
  const auto summary =
      read(R"({"otherData":{"clock_residual_us":[0.0,null,2.5]},"traceEvents":[)" + forward + "]}");
  ASSERT_THAT(summary.header.clock_residual_us, SizeIs(3));
  EXPECT_FALSE(summary.header.clock_residual_us[1]);
  EXPECT_EQ(summary.header.clock_residual_us[2], 2.5);
}

// Random damage must never cause a crash. The number of undamaged events must not exceed the number written.
TEST_F(TraceReader, SurvivesMutations) {
  std::string text = "{\"otherData\":{\"ranks\":1},\"traceEvents\":[\n" + forward;
  for (int i = 0; i < 6; ++i) text += ",\n" + (i % 2 == 0 ? backward : forward);
  text += "\n],\"x\":[1,{\"y\":\"z\"}]}";
  std::mt19937 random(seed(6));
  for (int round = 0; round < rounds(800, 60'000); ++round) {
    const auto damaged = mutated(text, random, 4, 40);
    try {
      const auto summary = read(damaged);
      EXPECT_LE(summary.bytes, damaged.size());
      EXPECT_LE(summary.events, 30U);
    } catch (const CorruptInput&) {
    }
  }
}

}  // namespace
}  // namespace farandole
