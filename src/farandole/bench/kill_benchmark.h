// Measures what a recorder file contains after its process was killed.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <filesystem>

namespace farandole {

struct KillLoss {
  int kills = 0;            // Number of processes killed with SIGKILL at random times.
  int sound_traces = 0;     // Cases in which the salvaged trace is undamaged and complete.
  double most_lost_us = 0;  // Longest time from the last recorded event to the last event that had ended.
};

// `folder` is for the recorder files, which are deleted afterwards.
// Throws: Error if a process cannot be started.
KillLoss measure_kills(const std::filesystem::path& folder, int kills);

}  // namespace farandole
