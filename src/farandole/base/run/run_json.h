// The only reader and writer of run.json, which describes a run. Plain values.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace farandole {

// A field is empty if run.json does not contain it, or contains it with another type, which causes a warning.
struct RunFacts {
  bool found = false;  // true if there is a readable run.json
  std::optional<std::int64_t> ranks;
  std::vector<std::string> hosts;         // by rank
  std::vector<std::string> gpus;          // UUID of the GPU, by rank; empty without GPUs
  std::vector<std::string> gpu_topology;  // which GPU it is and which others it can reach, by rank
  std::optional<std::string> device, program, started, ended;
  std::optional<std::int64_t> exit_code, restarts, parameters;
  std::optional<std::int64_t> total_steps;      // optimizer steps of the whole run
  std::optional<std::int64_t> lost_steps;       // steps of earlier starts that later starts had to repeat
  std::optional<std::int64_t> skipped_steps;    // steps without an update, because a gradient was not finite
  std::optional<std::int64_t> rollbacks;        // returns to a checkpoint for this reason
  std::optional<double> global_batch;           // samples per step of all ranks together
  std::optional<double> bucket_mb;              // also empty if it was found by the autotuner
  std::optional<std::int64_t> threads, cores;   // threads per rank; cores per node for all its ranks
  std::optional<std::int64_t> memory_mib;       // that all ranks of a node may use together
  std::string config;                           // the options of the training as a JSON object, or ""
  std::map<std::string, std::string> versions;  // by library
  std::optional<std::string> between_nodes;     // how the nodes exchange data and why
  // Floating-point operations that the model of a step needs, forward and backward, on all ranks together;
  // the peak of one device, which is a GPU or a rank without one, in 10^12 operations per second; and how
  // both are known.
  std::optional<double> model_flops, peak_tflops;
  std::optional<std::string> model_flops_from, peak_from;
  std::optional<double> tflops, mfu;  // of the whole start, at its end (model_rate.h)
  // Most memory of the GPU of rank 0 by owner in MiB, and "peak", which is their sum.
  std::vector<std::pair<std::string, double>> gpu_memory_by_owner_mib;
  std::optional<std::string> sharding;  // whether ranks share parameters, and what it saves
  std::vector<std::string> warnings;    // warnings of the reader
};

// Unknown fields are ignored. Never throws because of the contents of the file.
RunFacts read_run_facts(const std::filesystem::path& run_json);

// Takes the fields that the object has, as read_run_facts() does. `where` begins the warnings.
void take_run_facts(const nlohmann::ordered_json& object, const std::string& where, RunFacts& facts);

// Writes the fields that have a value, atomically.
// Throws: Error if the file cannot be written.
void write_run_facts(const std::filesystem::path& run_json, const RunFacts& facts);

}  // namespace farandole
