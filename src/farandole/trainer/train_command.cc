#include "farandole/trainer/train_command.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <torch/utils.h>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/log.h"
#include "farandole/base/process/launch_environment.h"
#include "farandole/base/process/program.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/base/text/phrases.h"
#include "farandole/checkpoint/checkpoint_file.h"
#include "farandole/checkpoint/checkpoint_store.h"
#include "farandole/checkpoint/schema.h"
#include "farandole/comm/agreement.h"
#include "farandole/comm/nccl/nccl_communicator.h"
#include "farandole/comm/watch/watchdog.h"
#include "farandole/job/run/run_directory.h"
#include "farandole/launch/process/memory.h"
#include "farandole/launch/stop_request.h"
#include "farandole/train/session_internals.h"
#include "farandole/trainer/builtin_training.h"
#include "farandole/trainer/data/dataset.h"
#include "farandole/trainer/train_options.h"
#include "farandole/trainer/trainer.h"

namespace farandole {
namespace {

std::string describe_model(const std::string& config) {
  const auto json = try_parse_json(config);
  if (!json.is_object() || !json.contains("model")) return "?";
  std::vector<std::string> parts;
  // By name, because earlier versions sorted members.
  for (const auto& [key, value] : json["model"].get<std::map<std::string, Json>>())
    parts.push_back(value.is_string() ? value.get<std::string>() : key + " " + json_text(value));
  return fmt::format("{}", fmt::join(parts, ", "));
}

// The part of a configuration that the state of the optimizer depends on.
std::string describe_optimizer(const std::string& config) {
  const auto json = try_parse_json(config);
  if (!json.is_object() || !json.contains("optimizer")) return "?";
  return json["optimizer"].get<std::string>() + (json.value("momentum", 0.0) > 0 ? " with momentum" : "");
}

// True if `farandole run` has started the ranks again, or Slurm the job.
bool is_started_again() {
  const auto count = [](const char* name) {
    const char* const text = std::getenv(name);
    return text != nullptr ? parse_number<int>(text).value_or(0) : 0;
  };
  return count(restarts_variable) > 0 || count("SLURM_RESTART_COUNT") > 0;
}

bool is_in(const std::filesystem::path& folder, const std::filesystem::path& file) {
  std::error_code failure;
  return std::filesystem::equivalent(file.parent_path().empty() ? "." : file.parent_path(), folder, failure);
}

// Selects the checkpoint for --resume. A job that was started again continues from its own
// checkpoints. Its parameters are read into `model`. Called on rank 0.
std::optional<Snapshot> find_start(const TrainOptions& options, const RunDirectory& run, Model& model) {
  const auto own = list_checkpoints(run.checkpoints());
  const auto resume = is_started_again() && !own.empty() ? "auto" : options.resume;
  if (resume == "none") {
    if (!own.empty())
      throw UserError(fmt::format(
          "{} already holds a run ({}); use --resume auto to continue it, or choose another --run-dir",
          options.run_dir.string(), own.front().file.filename().string()));
    return std::nullopt;
  }
  // A rollback or a restart would return to a checkpoint of the other run.
  if (resume != "auto" && !own.empty() && !is_in(run.checkpoints(), resume))
    throw UserError(fmt::format(
        "{} already holds a run ({}), and {} is not one of its checkpoints; use --resume auto to continue the run, or "
        "choose another --run-dir",
        options.run_dir.string(), own.front().file.filename().string(), resume));
  const auto memory = memory_of(model);
  auto found = resume == "auto"
                   ? read_newest_checkpoint(run.checkpoints(), memory)
                   : std::optional(std::pair(std::filesystem::path(resume), read_checkpoint(resume, memory)));
  if (!found) return std::nullopt;
  auto& [file, snapshot] = *found;
  if (!snapshot.not_finite.empty())
    throw CorruptInput(fmt::format("{}: {} has a NaN or an infinity; use an earlier checkpoint",
                                   file.string(), snapshot.not_finite));
  if (!own.empty() && own.front().step > snapshot.step && resume != "auto")
    throw UserError(fmt::format(
        "{} has a checkpoint ({}) that is later than {} and would be overwritten; choose another --run-dir",
        options.run_dir.string(), own.front().file.filename().string(), file.string()));
  const auto there = describe_model(snapshot.config);
  const auto here = describe_model(options.to_json());
  if (there != here)
    throw UserError(fmt::format(
        "{} belongs to another model ({}) than this run ({}); choose another --run-dir, or use the same "
        "options",
        file.string(), there, here));
  const auto saved = describe_optimizer(snapshot.config);
  if (const auto wanted = describe_optimizer(options.to_json()); saved != wanted) {
    if (options.resume_optimizer != "fresh")
      throw UserError(fmt::format(
          "{} has the state of another optimizer ({}) than this run ({}); use the same optimizer, or drop the "
          "state with --resume-optimizer fresh",
          file.string(), saved, wanted));
    std::erase_if(snapshot.arrays,
                  [](const Array& array) { return array.path.starts_with(schema::optimizer); });
  }
  return std::move(snapshot);
}

std::string describe_hosts(const std::vector<std::string>& hosts) {
  const std::set<std::string> different(hosts.begin(), hosts.end());
  if (different.size() <= 4) return fmt::format("{}", fmt::join(different, ", "));
  return fmt::format("{} hosts ({} … {})", different.size(), *different.begin(), *different.rbegin());
}

// `device` is what was chosen and why.
void greet(Session& session, const TrainOptions& options, const DataSplit& data, const Trainer& trainer,
           const RunFacts& facts, const std::string& device) {
  fmt::print("{} ({} parameters) on {}: {} training and {} held-out samples\n", options.model.name,
             facts.parameters.value_or(0), data.source, data.train->size(), data.held_out->size());
  fmt::print("{} rank{} on {}, {} thread{} each, {} samples per step, {} steps in {} epoch{}\n",
             session.size(), session.size() == 1 ? "" : "s", describe_hosts(session.hosts()),
             torch::get_num_threads(), torch::get_num_threads() == 1 ? "" : "s", trainer.global_batch(),
             trainer.total_steps(), options.epochs, options.epochs == 1 ? "" : "s");
  fmt::print("computes on {}\n", device);
  if (facts.between_nodes) fmt::print("{}\n", *facts.between_nodes);
  if (facts.sharding) fmt::print("{}\n", *facts.sharding);
  std::fflush(stdout);
}

// If an earlier run with the same number of ranks has measured its bucket size (--bucket-mb auto),
// it is used.
// Throws: UserError if the profile is damaged.
void take_tuned_plan(TrainOptions& options, int ranks) {
  const auto file = tuned_profile(options.run_dir, ranks);
  if (options.bucket_mb || !std::filesystem::exists(file)) return;
  TrainOptions kept;
  auto parser = train_option_parser(kept, file.parent_path());
  const std::string path = file.string();
  const char* const arguments[] = {"train", "--profile", path.c_str()};
  parser.parse(3, arguments);
  options.bucket_mb = kept.bucket_mb;
}

// Only rank 0 has read the run directory.
void share_plan(Session& session, TrainOptions& options) {
  double mib = options.bucket_mb.value_or(0);
  session.internals().communicator().broadcast("bucket size", &mib, sizeof mib, 0);
  options.bucket_mb = mib > 0 ? std::optional(mib) : std::nullopt;
}

// One line per option that all ranks must have in common. The folders of data and recorders may be local.
std::string lines_of(const OptionParser& parser, const boost::program_options::variables_map& given) {
  std::string lines;
  for (const auto& name : parser.names()) {
    if (name == "data" || name == "data-scratch" || name == "recorder-dir") continue;
    lines += fmt::format("--{} {}\n", name, option_text(given[name]));
  }
  return lines;
}

// Throws: UserError on all ranks if the options or the data are not the same on all of them.
void check_agreement(Session& session, const std::string& options, const DataSplit& data) {
  constexpr std::size_t most = 3;
  auto differences = find_disagreements(
      session.internals().communicator(), "options and data",
      options + fmt::format("data of {} training and {} held-out samples with hash {:016x}\n",
                            data.train->size(), data.held_out->size(), data.hash));
  differences.resize(std::min(differences.size(), most));
  std::vector<std::string> parts;
  for (const auto& [line, variants] : differences)
    for (const auto& [text, ranks] : variants)
      parts.push_back(fmt::format("{} on {}", text, describe_ranks(ranks)));
  session.together([&] {
    if (!parts.empty())
      throw UserError(fmt::format("the ranks must have the same options and the same data, but there are {}",
                                  fmt::join(parts, ", ")));
  });
}

// Returns the exit code. `options` must have been checked. All ranks end together after an error that all
// of them know (Session::together). If `stop` is due on any rank, all ranks save a checkpoint and return 75.
// Collective: every rank of the group must call this in the same order.
int train(Session& session, TrainOptions options, const std::string& option_lines, int argc,
          const char* const* argv, StopRequest& stop) {
  auto stalls = WatchdogOptions::from_environment();
  stalls.stall_seconds = options.stall_seconds.value_or(stalls.stall_seconds);
  stalls.stall_abort_seconds = options.stall_abort.value_or(stalls.stall_abort_seconds);
  session.internals().watch_stalls(stalls);
  if (options.transport) session.use_transport(*options.transport);
  std::optional<RunDirectory> run;
  std::optional<Snapshot> start;
  std::vector<std::string> changes;
  DataSplit data;
  std::shared_ptr<Model> model;
  session.together([&] {
    options.data.as_text = options.model.name == "gpt";
    options.data.context = options.model.context;
  });
  const bool only_cpu = options.device == "auto" && options.needs_cpu();
  auto device = session.use_device(only_cpu ? "cpu" : options.device, options.ranks_per_gpu);
  if (only_cpu) device += ": --compression and --synchronize parameters work there only";
  options.device = session.device().is_cuda() ? "cuda" : "cpu";  // for run.json and checkpoints
  data = open_staged_data(session, options.data, options.data_scratch);
  session.together([&] {
    if (data.train->size() < session.size())
      throw UserError(fmt::format("{} holds {} training samples for {} ranks; use fewer ranks or more data",
                                  options.data.path, data.train->size(), session.size()));
    torch::manual_seed(options.seed);
    model = make_model(options.model, data.shape);
    model->to(session.device());
    if (session.device().is_cuda()) use_channels_last(*model);
  });
  check_agreement(session, option_lines, data);
  session.together([&] {
    if (session.rank() != 0) return;
    run.emplace(options.run_dir);
    session.internals().take_lease(options.run_dir);
    start = find_start(options, *run, *model);
    if (start) check_order(*start, {data.train->size(), data.hash, options.seed});
    if (start) changes = changed_options(start->config, options.to_json());
    take_tuned_plan(options, session.size());
  });
  share_plan(session, options);
  const auto resumed = share_position(session, start);
  if (resumed && is_at_end(options, *resumed)) {
    if (session.rank() == 0)
      fmt::print(
          "nothing left to do: {} is at step {}, after {} epoch{}; raise --epochs or --steps to continue\n",
          options.run_dir.string(), resumed->step, resumed->epoch, resumed->epoch == 1 ? "" : "s");
    return 0;
  }
  const auto gpu_steps = ActivitySteps::parse(options.gpu_activity.value_or(""), "--gpu-activity");
  session.start_recording({options.run_dir, StepWindow::parse(options.timeline, "--timeline"), gpu_steps,
                           options.recorder_mb << 20, options.recorder_dir, options.merge_limit});
  if (options.gpu_activity && !gpu_steps.off() && session.rank() == 0 && !session.no_gpu_activity().empty())
    log_warning("--gpu-activity: no GPU activity is recorded: {}", session.no_gpu_activity());

  if (options.stop_before && session.rank() == 0 && !stop.before_job_ends(*options.stop_before, &std::getenv))
    log_warning("--stop-before has no effect, because it is not known when this job ends");
  BuiltInTraining training(session, options, data, model);
  Trainer trainer(session, options, options.to_json(), training, training, [&] { return stop.due(); });
  if (resumed) {
    const Span span(session.timeline(), Category::checkpoint, "restore checkpoint");
    trainer.resume(*resumed, start ? &*start : nullptr);
  }
  start.reset();
  if (run) {
    auto facts = trainer.facts();
    facts.program = fmt::format("{}", fmt::join(argv, argv + argc, " "));
    greet(session, options, data, trainer, facts, device);
    if (resumed) fmt::print("continuing from step {}\n", resumed->step);
    if (!changes.empty())
      fmt::print("these options differ from those of the checkpoint: {}\n", fmt::join(changes, ", "));
    trainer.started(*run, std::move(facts));
  }
  return static_cast<int>(run_to_end(session, trainer, run, /*prints=*/true));
}

}  // namespace

int train_command(int argc, const char* const* argv) {
  TrainOptions options;
  auto parser = train_option_parser(options, profiles_folder());
  for (int i = 1; i < argc; ++i)
    if (const std::string_view word = argv[i]; word == "--help" || word == "-h" || word == "--version")
      return parser.parse(argc, argv), 0;
  StopRequest stop;
  ::signal(SIGXFSZ, SIG_IGN);  // A file beyond ulimit -f fails like one on a full disk.
  ::signal(SIGUSR2, SIG_IGN);  // Until the session handles this signal, which requests a trace.
  return run_session(
      "farandole train", argc, argv,
      [&](Session& session) {
        boost::program_options::variables_map given;
        session.together([&] {
          parser.parse(argc, argv, &given);
          options.check();
        });
        return train(session, options, lines_of(parser, given), argc, argv, stop);
      },
      RecordFrom::start_recording);
}

namespace {

int show(int argc, const char* const* argv) {
  TrainOptions options;
  auto parser = train_option_parser(options, profiles_folder());
  parser.usage =
      "Usage: farandole config [TRAIN-OPTION]...\n\n"
      "Shows which value each option of farandole train has with these options, and where the value comes from: the\n"
      "command line, --set, the environment (FARANDOLE_LOG_STEPS for --log-steps), a profile, the site file, or the\n"
      "default. Wrong values are refused as farandole train refuses them.\n\n"
      "Examples:\n"
      "  $ farandole config --profile mnist --batch-size 16\n";
  bool only_checks = false;
  parser.more.add_options()("check", boost::program_options::bool_switch(&only_checks),
                            "only check that farandole train would accept these options");
  boost::program_options::variables_map given;
  if (!parser.parse(argc, argv, &given)) return 0;
  if (only_checks || (!options.data.path.empty() && !options.run_dir.empty())) options.check();
  if (only_checks) return 0;
  std::size_t widest = 6, longest = 5;
  for (const auto& name : parser.names()) {
    widest = std::max(widest, name.size() + 2);
    longest = std::max(longest, option_text(given[name]).size());
  }
  fmt::print("{:<{}}  {:<{}}  from\n", "option", widest, "value", longest);
  for (const auto& name : parser.names()) {
    const auto origin = parser.origins.find(name);
    fmt::print("{:<{}}  {:<{}}  {}\n", "--" + name, widest, option_text(given[name]), longest,
               origin != parser.origins.end() ? origin->second
               : given.count(name) != 0       ? "default"
                                              : "-");
  }
  return 0;
}

}  // namespace

int config_command(int argc, const char* const* argv) {
  return run_main("farandole config", [&] { return show(argc, argv); });
}

}  // namespace farandole
