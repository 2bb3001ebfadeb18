// The folder that a run leaves: its layout, and run.json. On rank 0, used by one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace farandole {

struct RunDescription {
  int ranks = 1;
  std::vector<std::string> hosts;  // by rank
  std::string device = "cpu";
  std::string program;            // command line
  std::int64_t global_batch = 0;  // samples a step, all ranks together
  std::int64_t parameters = 0;    // elements of the model
  std::string config;             // JSON
  double bucket_mb = 0;           // 0: found by trial
  int threads = 1;                // of a rank
  int cores = 1;                  // that the ranks of rank 0's node may use, all together
  std::map<std::string, std::string> versions;
};

class RunDirectory {
 public:
  // Makes the folder where it is missing. Throws UserError where it cannot be written.
  explicit RunDirectory(std::filesystem::path folder);

  std::filesystem::path checkpoints() const { return folder_ / "checkpoints"; }
  std::filesystem::path metrics() const { return folder_ / "metrics.jsonl"; }
  std::filesystem::path run_json() const { return folder_ / "run.json"; }

  // Writes run.json without "ended"; `restarts` counts the earlier starts in this folder.
  void started(const RunDescription& facts);
  // Adds "ended" and "exit_code", or warns where it cannot: the run has ended as it has. Without a started()
  // it does nothing.
  void ended(int exit_code);

 private:
  std::filesystem::path folder_;
  std::string started_;
};

}  // namespace farandole
