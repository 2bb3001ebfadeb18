#include "farandole/timeline/own_span.h"

#include <fstream>
#include <gtest/gtest.h>
#include <random>

#include "temporary_folder.h"
#include "timeline/visited_spans.h"

#include "farandole/timeline/trace_cursor.h"

namespace farandole {
namespace {

// Of an MPI call of the program: some, in the writer's order.
std::string mpi_arguments(std::mt19937_64& random) {
  std::string text;
  for (const char* key : {"bytes", "peer", "root", "tag", "ranks", "requests", "polls"})
    if (random() % 3 == 0)
      text +=
          std::string(text.empty() ? "\"" : ",\"") + key + "\":" + std::to_string(random() % 5'000'000'000);
  return text.empty() ? "\"ranks\":4" : text;
}

std::string event(std::mt19937_64& random) {
  const auto number = [&](unsigned most) { return std::to_string(random() % most); };
  const auto time = [&] {
    return number(5'000'000) + "." + std::to_string(1000 + random() % 1000).substr(1);
  };
  std::string text = "{\"ph\":\"X\",\"cat\":\"" +
                     std::string(random() % 9 == 0 ? "strange" : category_names[random() % 12]) +
                     "\",\"name\":\"layer " + number(9) + "\",\"pid\":" + number(5) +
                     ",\"tid\":" + number(3'000'000) + ",\"ts\":" + time() + ",\"dur\":" + time();
  if (random() % 4 != 0) {
    text += ",\"args\":{";
    const bool step = random() % 2 == 0;
    const bool phase = random() % 2 == 0;
    if (step) text += "\"step\":" + number(1'000);
    if (phase)
      text += std::string(step ? "," : "") + "\"phase\":\"" +
              std::string(random() % 9 == 0 ? "strange" : category_names[random() % 12]) + "\"";
    if (random() % 3 == 0)
      text += std::string(step || phase ? "," : "") + mpi_arguments(random);
    else if ((!step && !phase) || random() % 2 == 0)
      text += std::string(step || phase ? "," : "") +
              "\"operation\":\"allreduce\",\"communicator\":" + number(70'000) +
              ",\"sequence\":" + number(4'000'000'000) + ",\"bytes\":" + number(1'000'000'000);
    text += "}";
  }
  return text + "}";
}

// What the quick reader takes, the JSON parser takes for the same; a space in front of a colon makes it the
// parser's.
TEST(OwnSpan, agrees_with_the_parser) {
  const TemporaryFolder folder;
  std::mt19937_64 random(1);
  for (int round = 0; round < 2'000; ++round) {
    auto text = event(random);
    for (auto changes = round % 4; changes > 0 && round % 2 == 1; --changes)
      text[random() % text.size()] = "0123456789.\"{}:,- e\\x"[random() % 21];
    auto padded = text + "\n" + std::string(TraceCursor::padding, ' ');
    TraceSpan span;
    const char* const behind = read_own_span(padded.data(), padded.data() + text.size() + 1, span);
    VisitedSpans quick, parsed;
    if (behind != nullptr) quick.span(span);
    std::ofstream(folder / "t") << "[{\"ph\" :\"M\"}, " + text.substr(0, 5) + " " + text.substr(5) + "]";
    try {
      read_trace(folder / "t", parsed);
    } catch (const std::exception&) {
    }
    if (behind == nullptr) {
      if (round % 2 == 0 && !parsed.texts.empty()) ADD_FAILURE() << "not taken: " << text;
      continue;
    }
    const auto length = static_cast<std::size_t>(behind - padded.data());
    if (length != text.size()) continue;
    EXPECT_EQ(quick.texts, parsed.texts) << text;
  }
}

TEST(OwnSpan, takes_nothing_that_is_cut) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 100; ++round) {
    const auto text = event(random);
    TraceSpan span;
    for (std::size_t length = 0; length < text.size(); ++length) {
      const auto cut = text.substr(0, length) + std::string(TraceCursor::padding, '\0');
      EXPECT_EQ(read_own_span(cut.data(), cut.data() + length, span), nullptr);
      // What is behind the end does not count.
      const auto full = text + std::string(TraceCursor::padding, '\0');
      EXPECT_EQ(read_own_span(full.data(), full.data() + length, span), nullptr);
    }
  }
}

}  // namespace
}  // namespace farandole
