// What a recorder keeps of a process that is killed. Used by one thread.
#pragma once

#include <filesystem>

namespace farandole {

struct KillLoss {
  int kills = 0;            // by SIGKILL, at random moments
  int sound_traces = 0;     // what was salvaged is a trace without damage, which holds all that was there
  double most_lost_us = 0;  // from the last event that is there to the last one that had ended
};

// `folder`: for the recorders' files, which are removed again. Throws Error where a process cannot be
// started.
KillLoss measure_kills(const std::filesystem::path& folder, int kills);

}  // namespace farandole
