#include "farandole/timeline/recorder/interned_names.h"

#include <algorithm>
#include <deque>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "lane.h"

#include "farandole/base/files/temporary_folder.h"
#include "farandole/timeline/recorder/recorder_file.h"

namespace farandole {
namespace {

TimelineOptions in_file(const std::filesystem::path& file) {
  return {.file = file, .recorder_bytes = 1 << 20};
}

// A recorder's file with its names and an instance number that is unique in this process.
struct Recorder {
  Recorder(const std::filesystem::path& file, std::uint64_t number)
      : map(RecorderMap::create(in_file(file))), names(*map, number, mutex) {}
  std::unique_ptr<RecorderMap> map;
  std::mutex mutex;
  InternedNames names;
};

// Uses more names than a thread's cache holds, in several recorders, some of which end. Each name must have
// its own number in each recorder.
TEST(InternedNames, AreToldApart) {
  const TemporaryFolder folder;
  std::deque<std::string> texts;
  while (texts.size() < 1500) texts.push_back("name " + std::to_string(texts.size()));
  std::mt19937 random(seed(3));
  std::uint64_t number = 1'000'000;
  for (int round = 0; round < 4; ++round) {
    std::deque<Recorder> recorders;
    std::vector<std::vector<std::uint32_t>> ids;
    for (int i = 0; i < 3; ++i) {
      recorders.emplace_back(folder / std::to_string(i), ++number);
      ids.emplace_back(texts.size());
      auto order = ids.back();
      for (std::size_t t = 0; t < texts.size(); ++t) order[t] = static_cast<std::uint32_t>(t);
      std::shuffle(order.begin(), order.end(), random);
      for (const auto t : order) ids.back()[t] = recorders.back().names.intern(texts[t]);
    }
    const auto ask = [&](unsigned seed) {
      std::mt19937 own(seed);
      for (int i = 0; i < 20'000; ++i) {
        const auto r = own() % recorders.size();
        const auto t = own() % (i % 3 == 0 ? texts.size() : 200);
        ASSERT_EQ(recorders[r].names.id_of(texts[t].c_str()), ids[r][t]);
      }
    };
    ask(1);
    std::thread(ask, 2).join();
  }
}

TEST(InternedNames, ManyAreInTheFileOnce) {
  const TemporaryFolder folder;
  std::deque<std::string> texts;
  while (texts.size() < 180) texts.push_back("MPI_Function_" + std::to_string(texts.size()));
  {
    Recorder recorder(folder / "file.ftl", 2'000'000);
    for (int round = 0; round < 3; ++round)
      for (const auto& text : texts) recorder.names.id_of(text.c_str());
  }
  EXPECT_EQ(RecorderFile(folder / "file.ftl").names().size(), 1 + texts.size());
}

}  // namespace
}  // namespace farandole
