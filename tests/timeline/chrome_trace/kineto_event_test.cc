#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <random>

#include "lane.h"
#include "timeline/visited_spans.h"

#include "farandole/base/files/temporary_folder.h"
#include "farandole/timeline/chrome_trace/event_fields.h"
#include "farandole/timeline/chrome_trace/trace_cursor.h"

namespace farandole {
namespace {

// Writes events with random contents in the form of PyTorch's profiler.
class Profiler {
 public:
  explicit Profiler(unsigned seed) : random_(seed) {}

  std::uint64_t below(std::uint64_t most) { return random_() % most; }

  std::string event() {
    switch (below(8)) {
      case 0:
        return flow();
      case 1:
        return span("cuda_runtime", "cudaLaunchKernel", R"("External id": 7, "cbid": 211, "correlation": 7)");
      case 2:
        return span("user_annotation", "ProfilerStep#" + number(900), R"("External id": 7, "Ev Idx": 7)");
      case 3:
        return span("user_annotation", "gloo:all_reduce",
                    R"("External id": 7, "Input type": ["float"], "Input Dims": [[)" + number(9000) + "]]");
      case 4:
        return span("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)",
                    R"("stream": 7, "bytes": )" + number(9000));
      case 5:
        return span("kernel", "gemm<4, void (*)(int)>", kernel_args());
      case 6:
        return span("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
                    kernel_args() + R"(, "Collective name": "allreduce", "In msg nelems": )" + number(90000) +
                        R"(, "Group size": 2, "dtype": "Float", "Process Group Name": "0")");
      default:
        return span("cpu_op", "aten::addmm",
                    below(2) == 0 ? "" : R"("External id": 7, "Input Dims": [[32, 4]])");
    }
  }

 private:
  std::string number(std::uint64_t most) { return std::to_string(below(most)); }
  std::string time() { return fmt::format("{}.{:03}", below(5'000'000'000), below(1000)); }
  std::string kernel_args() {
    return R"("External id": 7, "queued": 0, "device": 0, "context": 1,)"
           "\n      "
           R"("stream": 7, "correlation": 7,)"
           "\n      "
           R"("grid": [512, 1, 1], "est. achieved occupancy %": 61)";
  }
  std::string span(const std::string& category, const std::string& name, const std::string& args) {
    return fmt::format(
        "{{\n    \"ph\": \"X\", \"cat\": \"{}\", \"name\": \"{}\", \"pid\": {}, \"tid\": {},\n    \"ts\": "
        "{}, \"dur\": {}{}\n  }}",
        category, name, below(9), below(99'999), time(), time(),
        args.empty() ? "" : ",\n    \"args\": {\n      " + args + "\n    }");
  }
  std::string flow() {
    return fmt::format(
        "{{\n    \"ph\": \"{}\", \"id\": {}, \"pid\": {}, \"tid\": {}, \"ts\": {},\n    \"cat\": "
        "\"ac2g\", \"name\": \"ac2g\"{}\n  }}",
        "sft"[below(3)], below(999), below(9), below(99), time(), below(2) == 0 ? ", \"bp\": \"e\"" : "");
  }

  std::mt19937_64 random_;
};

struct ReadKinetoEvents {
  std::vector<std::string> spans;
  std::uint64_t events = 0, unused = 0, damaged = 0;
};

ReadKinetoEvents visited(const std::filesystem::path& file, const std::vector<std::string>& events) {
  std::ofstream out(file);
  out << "{\"traceEvents\": [";
  for (const auto& event : events) out << (&event == events.data() ? "\n  " : ",\n  ") << event;
  out << "\n  ],\n  \"traceName\": \"t\"\n}\n" << std::flush;
  VisitedSpans visitor;
  TraceSummary summary;
  try {
    summary = read_trace(file, visitor);
  } catch (const std::exception&) {
  }
  return {visitor.texts, summary.events, summary.unused, summary.damaged};
}

// Adds a space before the first key, so that only the JSON parser reads the event.
std::string other_form(std::string event) {
  return event.insert(2, " ");
}

TEST(KinetoEvent, agrees_with_the_parser) {
  const TemporaryFolder folder;
  Profiler profiler(1);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::string> events(1 + profiler.below(30)), others;
    std::generate(events.begin(), events.end(), [&] { return profiler.event(); });
    std::transform(events.begin(), events.end(), std::back_inserter(others), other_form);
    const auto quick = visited(folder / "t", events), parsed = visited(folder / "t", others);
    EXPECT_EQ(quick.spans, parsed.spans);
    EXPECT_EQ(quick.events, events.size());
    EXPECT_EQ(parsed.events, events.size());
    EXPECT_EQ(quick.unused, parsed.unused);
  }
}

// The trace spans many of the reader's windows and contains events of another form.
TEST(KinetoEvent, agrees_with_the_parser_in_a_long_trace) {
  const TemporaryFolder folder;
  Profiler profiler(5);
  std::vector<std::string> events(10'000), others;
  std::generate(events.begin(), events.end(), [&] { return profiler.event(); });
  std::transform(events.begin(), events.end(), std::back_inserter(others), other_form);
  for (std::size_t i = 0; i < events.size(); i += 1 + profiler.below(20)) events[i] = others[i];
  for (std::size_t i = 5'000; i < 5'100; ++i) events[i] = others[i];
  const auto quick = visited(folder / "t", events), parsed = visited(folder / "t", others);
  EXPECT_EQ(quick.spans, parsed.spans);
  EXPECT_EQ(quick.events, events.size());
  EXPECT_EQ(quick.unused, parsed.unused);
}

TEST(KinetoEvent, takes_all_that_is_in_form) {
  Profiler profiler(2);
  const VisitedSpans visitor;
  for (int round = 0; round < 500; ++round) {
    const auto event = profiler.event();
    const auto text = event + ",\n" + std::string(TraceCursor::padding, ' ');
    EventFields fields;
    std::string_view args;
    EXPECT_EQ(read_kineto_event(text.data(), text.data() + event.size() + 2, visitor, fields, args),
              text.data() + event.size())
        << event;
  }
}

// The fast reader must accept all damaged events and neighbours that the parser accepts. It may accept more,
// because it does not check arguments that are not needed.
TEST(KinetoEvent, takes_no_less_of_what_is_damaged) {
  const TemporaryFolder folder;
  Profiler profiler(seed(3));
  for (int round = 0; round < rounds(800, 10'000); ++round) {
    std::vector<std::string> events(5), others;
    std::generate(events.begin(), events.end(), [&] { return profiler.event(); });
    for (auto changes = 1 + profiler.below(3); changes > 0; --changes) {
      auto& event = events[2];
      // Damages only the part after the added space.
      event[11 + profiler.below(event.size() - 11)] = "0123456789.\"{}:,- e\\x\n\xE2[]"[profiler.below(25)];
    }
    std::transform(events.begin(), events.end(), std::back_inserter(others), other_form);
    const auto quick = visited(folder / "t", events), parsed = visited(folder / "t", others);
    auto left = parsed.spans;
    for (const auto& span : quick.spans)
      if (const auto found = std::find(left.begin(), left.end(), span); found != left.end())
        left.erase(found);
    EXPECT_TRUE(left.empty()) << "not taken: " << left.front() << "\nof: " << events[2];
    EXPECT_LE(quick.damaged, parsed.damaged) << events[2];
  }
}

TEST(KinetoEvent, takes_nothing_that_is_cut) {
  Profiler profiler(4);
  const VisitedSpans visitor;
  for (int round = 0; round < 100; ++round) {
    const auto event = profiler.event();
    EventFields fields;
    std::string_view args;
    for (std::size_t length = 0; length < event.size(); ++length) {
      const auto cut = event.substr(0, length) + std::string(TraceCursor::padding, '\0');
      EXPECT_EQ(read_kineto_event(cut.data(), cut.data() + length, visitor, fields, args), nullptr);
      // Text after the end must be ignored.
      const auto full = event + std::string(TraceCursor::padding, '\0');
      EXPECT_EQ(read_kineto_event(full.data(), full.data() + length, visitor, fields, args), nullptr);
    }
  }
}

}  // namespace
}  // namespace farandole
