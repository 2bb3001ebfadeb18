// What a user can do about something, in the words of the program that they use: an option of `farandole
// train` means nothing to somebody who wrote a program of their own. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <span>
#include <string>

#include "farandole/base/run/run_json.h"

namespace farandole {

// python: a program in Python. other: a program of another framework, of which there is only a trace.
enum class ProgramKind { train, fit, program, python, other };

// Whether users wrote the program, in C++ or Python, so that its checkpoints may have any name.
constexpr bool is_of_users(ProgramKind kind) {
  return kind == ProgramKind::program || kind == ProgramKind::python;
}

// `command`: program and arguments, as the launcher started them; run.json counts more.
ProgramKind kind_of_program(const RunFacts& facts, std::span<const std::string> command = {});

enum class Topic {
  global_batch,       // say how many samples a step has
  number_steps,       // say where steps are
  record_phases,      // say what the training thread does
  change_buckets,     // "start buckets earlier (…)"
  set_buckets,        // what sets the size of the buckets
  send_less,          // "send less (…)"
  larger_steps,       // "larger steps (…)"
  save_less,          // "checkpoint less often (…)"
  save_at_all,        // after "there is no checkpoint to continue from; "
  resume,             // after "the same command continues from step 60"
  evaluate_less,      // "evaluate less often, or …"
  less_memory,        // after "use less memory per rank: "
  check_data,         // after "rank 1 was loading data: "
  watch_stalls,       // "… makes every rank report what it does; … ends the job"
  ended_by_stall,     // what ended a job that stalled
  save_before_limit,  // what a signal before the time limit does
};

const char* remedy(Topic topic, ProgramKind kind);

}  // namespace farandole
