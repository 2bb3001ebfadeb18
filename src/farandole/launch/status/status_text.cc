#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "farandole/base/text/json.h"
#include "farandole/base/text/phrases.h"
#include "farandole/launch/run_status.h"

namespace farandole {
namespace {

using State = RunStatus::State;

const char* name_of(State state) {
  switch (state) {
    case State::starting:
      return "starting";
    case State::running:
      return "running";
    case State::waiting:
      return "waiting";
    case State::stopped:
      return "stopped";
    case State::finished:
      return "finished";
    case State::failed:
      return "failed";
    case State::lost:
      break;
  }
  return "lost";
}

std::string steps(const RunStatus& run) {
  if (!run.step) return "";
  if (run.total_steps.value_or(0) < 1) return fmt::format("step {}", *run.step);
  return fmt::format("step {} of {} ({:.0f} %)", *run.step, *run.total_steps,
                     100.0 * static_cast<double>(*run.step) / static_cast<double>(*run.total_steps));
}

std::string headline(const RunStatus& run) {
  std::string line = fmt::format("{}: {}", run.folder, name_of(run.state));
  if (run.state == State::waiting) line += " to start again";
  if (run.state == State::failed && run.exit_code) line += fmt::format(" with exit code {}", *run.exit_code);
  if (const auto done = steps(run); !done.empty()) line += ", " + done;
  if (run.epoch && is_under_way(run.state)) line += fmt::format(", epoch {}", *run.epoch + 1);
  return line + "\n";
}

std::string paragraph(const RunStatus& run) {
  std::string text = headline(run);
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) text += fmt::format("  {:<11} {}\n", name, value);
  };
  add("reason", run.detail);
  if (run.samples_per_s && run.step_ms)
    add("rate", fmt::format("{:.0f} samples/s, {:.3g} ms per step", *run.samples_per_s, *run.step_ms));
  if (run.loss) {
    auto loss = fmt::format("{:.4f}", *run.loss);
    if (run.eval_loss) loss += fmt::format(", held-out {:.4f}", *run.eval_loss);
    if (run.eval_accuracy) loss += fmt::format(", accuracy {:.2f} %", 100 * *run.eval_accuracy);
    add("loss", loss);
  }
  if (run.seconds_left) add("time left", describe_clock(*run.seconds_left));
  if (run.wall_seconds_left)
    add("wall time", *run.wall_seconds_left > 0 ? describe_clock(*run.wall_seconds_left) + " left" : "over");
  if (run.checkpoint_step)
    add("checkpoint",
        fmt::format("step {}{}", *run.checkpoint_step,
                    run.checkpoint_age_s ? ", " + describe_clock(*run.checkpoint_age_s) + " ago" : ""));
  else
    add("checkpoint", "none");
  if (run.restarts.value_or(0) > 0)
    add("restarts", fmt::format("{}; {} steps were repeated", *run.restarts, run.lost_steps.value_or(0)));
  if (run.ranks)
    add("ranks",
        fmt::format("{}{}", *run.ranks, run.hosts.empty() ? "" : " on " + describe_list(run.hosts, 4)));
  if (!run.job.empty()) add("Slurm job", run.job + (run.job_state.empty() ? "" : " (" + run.job_state + ")"));
  return text;
}

std::string table(const std::vector<RunStatus>& runs) {
  std::size_t widest = 3;
  for (const auto& run : runs) widest = std::max(widest, run.folder.size());
  auto text = fmt::format("{:<{}}  {:<8}  {:>17}  {:>10}  {:>10}  {:>10}  {:>10}  {:>8}\n", "run", widest,
                          "state", "step", "samples/s", "loss", "held-out", "checkpoint", "restarts");
  const auto number = [](const auto& value, const char* format) {
    return value ? fmt::format(fmt::runtime(format), *value) : std::string("-");
  };
  for (const auto& run : runs)
    text += fmt::format(
        "{:<{}}  {:<8}  {:>17}  {:>10}  {:>10}  {:>10}  {:>10}  {:>8}\n", run.folder, widest,
        name_of(run.state),
        number(run.step, "{}") + (run.total_steps ? fmt::format("/{}", *run.total_steps) : ""),
        number(run.samples_per_s, "{:.0f}"), number(run.loss, "{:.4f}"), number(run.eval_loss, "{:.4f}"),
        number(run.checkpoint_step, "{}"), number(run.restarts, "{}"));
  return text;
}

Json to_json(const RunStatus& run) {
  Json json = {{"run", run.folder}, {"state", name_of(run.state)}};
  const auto set = [&](const char* name, const auto& value) {
    if (value) json[name] = *value;
  };
  if (!run.detail.empty()) json["reason"] = run.detail;
  set("exit_code", run.exit_code);
  set("step", run.step);
  set("total_steps", run.total_steps);
  set("epoch", run.epoch);
  set("loss", run.loss);
  set("eval_loss", run.eval_loss);
  set("eval_accuracy", run.eval_accuracy);
  set("samples_per_s", run.samples_per_s);
  set("step_ms", run.step_ms);
  set("seconds_left", run.seconds_left);
  set("wall_seconds_left", run.wall_seconds_left);
  set("checkpoint_step", run.checkpoint_step);
  set("checkpoint_age_s", run.checkpoint_age_s);
  set("restarts", run.restarts);
  set("lost_steps", run.lost_steps);
  set("ranks", run.ranks);
  json["hosts"] = run.hosts;
  if (!run.job.empty()) json["slurm_job"] = run.job;
  if (!run.job_state.empty()) json["slurm_state"] = run.job_state;
  return json;
}

}  // namespace

std::string status_text(const std::vector<RunStatus>& runs) {
  return runs.size() == 1 ? paragraph(runs.front()) : table(runs);
}

std::string status_json(const std::vector<RunStatus>& runs) {
  auto list = Json::array();
  for (const auto& run : runs) list.push_back(to_json(run));
  return json_text({{"farandole_status", 1}, {"runs", list}}, 2) + "\n";
}

}  // namespace farandole
