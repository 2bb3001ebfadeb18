#include <fstream>
#include <gtest/gtest.h>
#include <random>

#include "lane.h"
#include "timeline/visited_spans.h"

#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/timeline/chrome_trace/event_fields.h"
#include "farandole/timeline/chrome_trace/trace_cursor.h"

namespace farandole {
namespace {

// Some arguments of an MPI call of the program, in the order of the writer.
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
  const auto place = [&] {
    return ",\"pid\":" + number(5) + ",\"tid\":" + number(3'000'000) + ",\"ts\":" + time();
  };
  switch (random() % 8) {
    case 0:
      return R"({"ph":"i","s":"t","cat":"other","name":"gradient fc)" + number(9) + "\"" + place() +
             (random() % 3 == 0 ? "" : R"(,"args":{"bytes":)" + number(900'000) + "}") + "}";
    case 1:
      return (random() % 2 == 0 ? R"({"ph":"s",)" : R"({"ph":"f","bp":"e",)") +
             (R"("cat":"flow","name":"collective","id":)" + number(70'000)) + place() + "}";
    default:
      break;
  }
  std::string text = "{\"ph\":\"X\",\"cat\":\"" +
                     std::string(random() % 9 == 0 ? "strange" : category_names[random() % 12]) +
                     "\",\"name\":\"layer " + number(9) + "\"" + place() + ",\"dur\":" + time();
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

struct ReadOwnEvents {
  std::vector<std::string> texts;
  std::uint64_t unused = 0;
  bool operator==(const ReadOwnEvents&) const = default;
};

ReadOwnEvents visited(const std::filesystem::path& file, const std::string& event) {
  std::ofstream(file) << "[" << event << "\n]";
  VisitedSpans visitor;
  try {
    const auto summary = read_trace(file, visitor);
    return {visitor.texts, summary.unused};
  } catch (const CorruptInput&) {
    return {};
  }
}

// The JSON parser must give the same result as the fast reader. A space before a colon makes the event
// one for the parser.
TEST(OwnEvent, agrees_with_the_parser) {
  const TemporaryFolder folder;
  std::mt19937_64 random(seed(1));
  for (int round = 0; round < rounds(800, 10'000); ++round) {
    auto text = event(random);
    for (auto changes = round % 4; changes > 0 && round % 2 == 1; --changes)
      text[random() % text.size()] = "0123456789.\"{}:,- e\\x"[random() % 21];
    const auto padded = text + "\n" + std::string(TraceCursor::padding, ' ');
    OwnEvent read;
    const char* const behind = read_own_event(padded.data(), padded.data() + text.size() + 1, read);
    if (behind != nullptr && behind != padded.data() + text.size()) continue;
    const auto parsed = visited(folder / "t", text.substr(0, 5) + " " + text.substr(5));
    if (behind != nullptr) {
      EXPECT_EQ(visited(folder / "t", text), parsed) << text;
    } else {
      EXPECT_TRUE(round % 2 == 1 || parsed == ReadOwnEvents()) << "not taken: " << text;
    }
  }
}

TEST(OwnEvent, takes_nothing_that_is_cut) {
  std::mt19937_64 random(seed(2));
  for (int round = 0; round < 100; ++round) {
    const auto text = event(random);
    OwnEvent read;
    for (std::size_t length = 0; length < text.size(); ++length) {
      const auto cut = text.substr(0, length) + std::string(TraceCursor::padding, '\0');
      EXPECT_EQ(read_own_event(cut.data(), cut.data() + length, read), nullptr);
      // Text after the end must be ignored.
      const auto full = text + std::string(TraceCursor::padding, '\0');
      EXPECT_EQ(read_own_event(full.data(), full.data() + length, read), nullptr);
    }
  }
}

}  // namespace
}  // namespace farandole
