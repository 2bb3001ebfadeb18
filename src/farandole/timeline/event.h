// The vocabulary of events that recorder, trace writer, trace reader and analyzer share. Plain values.
// Thread safety: any thread may call this at any time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace farandole {

enum class Category : std::uint8_t {
  data,  // fetching and preparing a batch
  forward,
  backward,
  optimizer,      // parameter update
  communication,  // a collective's execution on the thread that runs it
  wait,           // the training thread waits for a collective of another thread
  checkpoint,
  evaluation,
  gpu_kernel,
  gpu_memcpy,
  step,   // one whole training step; encloses the others
  other,  // user annotations
};
inline constexpr std::array<std::string_view, 12> category_names = {
    "data",       "forward",    "backward",   "optimizer",  "communication", "wait",
    "checkpoint", "evaluation", "gpu_kernel", "gpu_memcpy", "step",          "other"};

constexpr std::string_view name_of(Category category) {
  return category_names[static_cast<std::size_t>(category)];
}
constexpr std::optional<Category> category_of(std::string_view name) {
  for (std::size_t i = 0; i < category_names.size(); ++i)
    if (category_names[i] == name) return static_cast<Category>(i);
  return std::nullopt;
}

// The position of the training thread when it launched work that runs elsewhere.
struct TrainingPlace {
  std::int64_t step = -1;           // -1: outside of steps
  std::optional<Category> phase{};  // of the innermost span with a phase; steps and annotations have none
};

// A collective's execution on one rank. The span starts when this rank enters the call; that
// is the rank's arrival.
struct Collective {
  std::uint32_t sequence = 0;      // counts the collectives of one communicator, equal on all ranks
  std::uint16_t communicator = 0;  // also equal on all ranks; (communicator, sequence) links them
  std::uint64_t bytes = 0;         // payload of this rank; of an all-gather, that of all ranks
};

// What is known of an MPI call of the program beside its name and time.
struct MpiCall {
  std::optional<std::uint64_t> bytes;
  std::optional<std::int32_t> peer, root;  // ranks of the call's communicator
  std::optional<std::int32_t> tag;
  std::optional<std::uint32_t> ranks;     // of the communicator
  std::optional<std::uint32_t> requests;  // that the call waits for
  // Consecutive calls without success that this one stands for; the fields above are then empty.
  std::uint64_t polls = 0;
};

// The format of the Chrome trace that rank 0 publishes (timeline.json.gz):
//
//   {"displayTimeUnit":"ms","otherData":{"farandole_trace":1,"ranks":2,"clock_residual_us":[0.0,1.5]},"traceEvents":[
//   one event per line, separated by ",\n"
//   ]}
//   Units: ts and dur are microseconds with 3 decimals on rank 0's clock; ts ≥ 0.
//   clock_residual_us has one value per rank; null means that the rank's clock is unknown.
//
//   process     {"ph":"M","name":"process_name","pid":P,"args":{"name":"rank 0 · node1","rank":0,
//               "host":"node1"}}, process_sort_index = rank; P = rank + 1;
//               process_labels says how many events are missing
//   thread      {"ph":"M","name":"thread_name","pid":P,"tid":T,"args":{"name":"training"}}, thread_sort_index;
//               T = 1,000,000 + 1,000·rank + index, so that no tid equals a pid (Perfetto would merge them);
//               index 0 is the training thread
//   span        {"ph":"X","cat":"forward","name":"forward","pid":P,"tid":T,"ts":…,"dur":…,"args":{"step":12}}
//               Outside of steps there is no "step". A GPU's span also has "phase":"backward", the
//               category of the training thread's span in which the work was launched, "queued_us":12.345, how
//               long before its start that was, and, if it is a copy, "bytes".
//   collective  as a span, cat "communication", name as given by the caller ("bucket 0"),
//               args {"step":12,"operation":"allreduce","communicator":0,"sequence":17,"bytes":1048576}
//   MPI call    of the program, as a span with the function's name; cat "communication" ("other" for files,
//               start and end), args {"step":12,"bytes":4096,"peer":1,"tag":7,"ranks":4}, "root", "requests",
//               "polls" (calls without success that the span stands for); only args that apply are present
//   flow        "s" on the collective of the first rank to arrive, "f" (with "bp":"e") on each other rank's,
//               cat "flow", name "collective"; one id per pair, so that every "s" has exactly one "f"
//   counter     {"ph":"C","name":"CPU %","pid":P,"ts":…,"args":{"value":98.5}};
//               names and units: docs/file-formats.md
//   instant     {"ph":"i","s":"t","cat":"other","name":…,"pid":P,"tid":T,"ts":…}, with
//               "args":{"bytes":1048576} if it is about so many bytes: "bucket 3 ready" is the moment
//               from which that bucket can be sent; "idle cores 2-7" names cores of the job that were not used

}  // namespace farandole
