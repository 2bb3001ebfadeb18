// The one reader and writer of run.json, which says what ran. Plain values; usable from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace farandole {

// Each field is empty where run.json does not have it, or has it in another type (then a warning says so).
struct RunFacts {
  bool found = false;  // there is a readable run.json
  std::optional<std::int64_t> ranks;
  std::vector<std::string> hosts;  // by rank
  std::optional<std::string> device, program, started, ended;
  std::optional<std::int64_t> exit_code, restarts, parameters;
  std::optional<double> global_batch;           // samples per step of all ranks together
  std::optional<double> bucket_mb;              // none also where it was found by trial
  std::optional<std::int64_t> threads, cores;   // of a rank; of a node, for all its ranks
  std::string config;                           // the options of the training: a JSON object, or ""
  std::optional<std::string> compression;       // as `config` says; only read
  std::map<std::string, std::string> versions;  // by library
  std::vector<std::string> warnings;            // of the reader
};

// Fields that it does not know are left out. Never throws for what is in the file.
RunFacts read_run_facts(const std::filesystem::path& run_json);

// Writes the fields that have a value, atomically. Throws Error where the file cannot be written.
void write_run_facts(const std::filesystem::path& run_json, const RunFacts& facts);

}  // namespace farandole
