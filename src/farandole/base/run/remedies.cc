#include "farandole/base/run/remedies.h"

#include <array>
#include <cstddef>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <vector>

namespace farandole {
namespace {

struct Remedies {
  Topic topic;
  const char *train, *fit, *program, *python, *other;
};

constexpr const char* write_run_json = "write run.json with {\"global_batch\": N} beside the trace";
constexpr const char* save_less = "checkpoint less often";
constexpr const char* save_less_by_option = "checkpoint less often (--checkpoint-every)";
constexpr const char* watch_by_environment =
    "FARANDOLE_STALL_SECONDS=30 makes every rank report what it does, with its stack; FARANDOLE_STALL_ABORT=300 "
    "ends the job after 300 s instead of 1800 s";
constexpr const char* ended_by_environment =
    "the limit for stalls (FARANDOLE_STALL_ABORT, 1800 s by default)";

// In the order of Topic.
constexpr std::array remedies_by_topic = {
    Remedies{Topic::global_batch, write_run_json, write_run_json, "give farandole::Run the global_batch",
             "load its samples with a DataLoader that has a batch_size", write_run_json},
    Remedies{Topic::number_steps, "--timeline all records all steps", "a new run records all steps",
             "session.set_step(n) or farandole::Run numbers them", "farandole.record.step(n) numbers them",
             "mark them in the profiler"},
    Remedies{Topic::record_phases, "--timeline all records them", "a new run records them",
             "farandole::Span records them",
             "farandole run --trace-torch records those of modules, backward() and optimizers",
             "mark them in the profiler"},
    Remedies{Topic::change_buckets, "start buckets earlier (smaller --bucket-mb)",
             "use larger batches (--batch-size)",
             "start buckets earlier (smaller buckets.bytes of DistributedOptimizerOptions)",
             "start buckets earlier (smaller bucket_cap_mb)",
             "start buckets earlier (PyTorch: smaller bucket_cap_mb),"},
    Remedies{Topic::set_buckets, "--bucket-mb", "they cannot be set",
             "buckets.bytes of DistributedOptimizerOptions", "bucket_cap_mb", "PyTorch: bucket_cap_mb"},
    Remedies{
        Topic::send_less, "send less (--compression, larger --batch-size, --accumulate)",
        "send less (--accumulate)",
        "send less (compression and backward_passes_per_step of DistributedOptimizerOptions, larger batches)",
        "send less (compression hooks, larger batches, gradient accumulation)",
        "send less: compression hooks, larger batches, gradient accumulation"},
    Remedies{Topic::larger_steps, "larger steps (--batch-size, --accumulate)",
             "larger steps (--batch-size, --accumulate)",
             "larger steps (larger batches, backward_passes_per_step of DistributedOptimizerOptions)",
             "larger steps (larger batches, gradient accumulation)",
             "larger steps (larger batches, gradient accumulation)"},
    Remedies{Topic::save_less, save_less_by_option, save_less_by_option,
             "checkpoint less often (checkpoint_every of farandole::Run)", save_less, save_less},
    Remedies{Topic::save_at_all, "--checkpoint-every auto saves one from time to time",
             "--checkpoint-every auto saves one from time to time",
             "farandole::Run saves one from time to time (checkpoint_every)", "save one from time to time",
             "save one from time to time"},
    Remedies{Topic::resume, " (--resume auto)", "", " if the program calls resume() of farandole::Run",
             " if the program loads it", ""},
    Remedies{Topic::evaluate_less, "evaluate less often, or on fewer samples (--validation)",
             "validate on fewer rows (--validation, --validation-steps)",
             "evaluate less often, or on fewer samples", "evaluate less often, or on fewer samples",
             "evaluate less often, or on fewer samples"},
    Remedies{Topic::less_memory, "a smaller --batch-size, with --accumulate to keep the global batch",
             "a smaller --batch-size, with --accumulate to keep the global batch",
             "smaller batches, with backward_passes_per_step to keep the global batch",
             "smaller batches, with gradient accumulation to keep the global batch",
             "smaller batches, with gradient accumulation to keep the global batch"},
    Remedies{Topic::check_data, "check the file system of --data", "check the file system of --table",
             "check the file system of its data", "check the file system of its data",
             "check the file system of its data"},
    Remedies{
        Topic::watch_stalls,
        "--stall-seconds 30 makes every rank report what it does, with its stack; --stall-abort 300 ends the "
        "job after 300 s instead of 1800 s",
        watch_by_environment, watch_by_environment, watch_by_environment, watch_by_environment},
    Remedies{Topic::ended_by_stall, "the limit for stalls (--stall-abort, 1800 s by default)",
             ended_by_environment, ended_by_environment, ended_by_environment, ended_by_environment},
    Remedies{Topic::save_before_limit, "the ranks then save and exit with code 75",
             "the ranks then save and exit with code 75",
             "with farandole::Run, the ranks then save and exit with code 75",
             "if it asks farandole.record.stopping(), the program can save then",
             "the program can save then"},
};

constexpr bool is_in_order() {
  for (std::size_t i = 0; i < remedies_by_topic.size(); ++i)
    if (remedies_by_topic[i].topic != static_cast<Topic>(i)) return false;
  return remedies_by_topic.back().topic == Topic::save_before_limit;
}
static_assert(is_in_order());

ProgramKind kind_of_words(std::span<const std::string> words) {
  if (words.empty()) return ProgramKind::program;
  const auto name = std::filesystem::path(words[0]).filename().string();
  const auto is = [&](const std::string& verb) {
    return name == "farandole-" + verb || (name == "farandole" && words.size() > 1 && words[1] == verb);
  };
  if (name.starts_with("python") || name.ends_with(".py")) return ProgramKind::python;
  return is("train") ? ProgramKind::train : is("fit") ? ProgramKind::fit : ProgramKind::program;
}

}  // namespace

ProgramKind kind_of_program(const RunFacts& facts, std::span<const std::string> command) {
  if (!facts.program) return kind_of_words(command);
  std::istringstream text(*facts.program);
  std::vector<std::string> words(2);
  text >> words[0] >> words[1];
  return kind_of_words(words);
}

const char* remedy(Topic topic, ProgramKind kind) {
  const auto& one = remedies_by_topic[static_cast<std::size_t>(topic)];
  switch (kind) {
    case ProgramKind::train:
      return one.train;
    case ProgramKind::fit:
      return one.fit;
    case ProgramKind::python:
      return one.python;
    case ProgramKind::other:
      return one.other;
    case ProgramKind::program:
      break;
  }
  return one.program;
}

}  // namespace farandole
