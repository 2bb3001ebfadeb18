// A small timeline in Horovod's format. A pure function.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace farandole::testing {

// Two tensors on three ranks; rank 2 is ready 30 ms behind the others.
// The array is left open, as Horovod leaves it.
inline std::string horovod_text(bool inner_phases = true) {
  std::string text = "[\n";
  const auto line = [&](const std::string& event) { text += event + ",\n"; };
  for (int tensor = 1; tensor <= 2; ++tensor) {
    const auto pid = R"("pid":)" + std::to_string(tensor) + "}";
    line(R"({"name":"process_name","ph":"M","args":{"name":"grad/)" + std::to_string(tensor) + "\"}," + pid);
    line(R"({"name":"process_sort_index","ph":"M","args":{"sort_index":1},)" + pid);
    for (int step = 0; step < 10; ++step) {
      const auto at = [&](int ms) {
        return R"("ts":)" + std::to_string((step * 100 + tensor * 10 + ms) * 1000) + ",";
      };
      line(R"({"ph":"B","name":"NEGOTIATE_ALLREDUCE",)" + at(0) + pid);
      for (int rank = 0; rank < 3; ++rank)
        line(R"({"ph":"X","name":")" + std::to_string(rank) + R"(","dur":0,)" + at(rank == 2 ? 30 : 0) + pid);
      line(R"({"ph":"E",)" + at(30) + pid);
      line(R"({"ph":"B","name":"ALLREDUCE",)" + at(31) + pid);
      const std::vector<std::pair<std::string, int>> phases = {{"QUEUE", 31},
                                                               {"MEMCPY_IN_FUSION_BUFFER", 33},
                                                               {"NCCL_ALLREDUCE", 34},
                                                               {"MEMCPY_OUT_FUSION_BUFFER", 39}};
      for (std::size_t i = 0; i < phases.size() && inner_phases; ++i) {
        line(R"({"ph":"B","name":")" + phases[i].first + "\"," + at(phases[i].second) + pid);
        line(R"({"ph":"E",)" + at(i + 1 < phases.size() ? phases[i + 1].second : 40) + pid);
      }
      line(R"({"ph":"E",)" + at(40) + pid);
    }
  }
  return text;
}

}  // namespace farandole::testing
