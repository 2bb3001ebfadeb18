#include "farandole/job/run/metrics_log.h"

#include <algorithm>
#include <cmath>
#include <fcntl.h>
#include <fstream>
#include <limits>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/log.h"
#include "farandole/base/text/json.h"

namespace farandole {
namespace {

constexpr const char *skipped_step = "skipped step", *rollback = "rollback";

constexpr auto whole_file = std::numeric_limits<std::uint64_t>::max();

Json parse(std::string_view line) {
  return try_parse_json(line);
}

// Returns false for a line without a number of its step.
bool is_up_to(std::int64_t last_step, std::string_view line) {
  const auto json = parse(line);
  const auto step = json.is_object() ? json.value("step", Json()) : Json();
  return step.is_number() && step.get<std::int64_t>() <= last_step;
}

// Returns -1 if it is not known.
off_t size_of_file(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? status.st_size : -1;
}

void drop_lines_after(std::int64_t last_step, const std::filesystem::path& file) {
  AtomicFile shorter(file);
  std::ofstream kept(shorter.temporary());
  read_lines(file, whole_file, [&](std::string_view line) {
    if (is_up_to(last_step, line)) kept << line << '\n';
  });
  if (!kept.flush()) throw system_error("write", shorter.temporary());
  shorter.publish();
}

}  // namespace

MetricsEvents count_events(const std::filesystem::path& file) {
  MetricsEvents events;
  read_lines(file, whole_file, [&](std::string_view line) {
    if (line.find("\"event\"") == std::string_view::npos) return;
    const auto json = parse(line);
    const auto event = json.is_object() ? json.value("event", Json()) : Json();
    if (event == skipped_step) ++events.skipped_steps;
    if (event == rollback) ++events.rollbacks;
  });
  return events;
}

MetricsLog::MetricsLog(const std::filesystem::path& file, std::int64_t last_step) : path_(file) {
  if (open_regular_file(file).get() >= 0) drop_lines_after(last_step, file);
  file_ = OwnedDescriptor(::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
  if (file_.get() < 0) throw system_error("open", file);
}

// A part of a line that could be written is removed again, so that the file has whole lines only.
void MetricsLog::append(const Json& line) {
  const auto step = line.value("step", std::int64_t{0});
  if (observer)
    for (const auto& [key, value] : line.items())
      if (value.is_number() && key != "step") observer(step, key, value.get<double>());
  const auto before = size_of_file(file_.get());
  try {
    write_bytes(file_.get(), (torn_ ? "\n" : "") + json_text(line) + '\n', path_);
  } catch (const Error& error) {
    if (lost_lines_++ == 0)
      log_warning(
          "{}; from step {} on, lines of metrics are lost until the file can be written again, and "
          "training continues{}",
          error.what(), step, error.lacks_space() ? "; free space on this file system" : "");
    if (size_of_file(file_.get()) != before) torn_ = before < 0 || ::ftruncate(file_.get(), before) != 0;
    return;
  }
  torn_ = false;
  if (lost_lines_ > 0)
    log_warning("{} is written again from step {} on; {} lines are lost", path_.string(), step,
                std::exchange(lost_lines_, 0));
}

void MetricsLog::write(const Training& line) {
  Json json = {{"step", line.step}, {"epoch", line.epoch}};
  for (const auto& [key, value] : line.values) json[key] = value;
  if (!std::isnan(line.lr)) json["lr"] = line.lr;
  if (line.samples_per_s > 0) json["samples_per_s"] = line.samples_per_s;
  json["step_ms"] = line.step_ms;
  append(json);
}

void MetricsLog::write(const Values& line) {
  Json json = {{"step", line.step}, {"epoch", line.epoch}};
  for (const auto& [key, value] : line.values) json[key] = value;
  append(json);
}

void MetricsLog::write(const Resources& line) {
  Json json = {{"step", line.step}, {"epoch", line.epoch}};
  const bool gpus =
      std::ranges::any_of(line.ranks, [](const auto& rank) { return rank.gpu_percent.has_value(); });
  const auto or_null = [](std::optional<double> value) { return value ? Json(*value) : Json(); };
  for (const auto& rank : line.ranks) {
    json["cpu_percent"].push_back(rank.cpu_percent);
    json["memory_mib"].push_back(rank.memory_mib);
    json["read_mb"].push_back(rank.read_mb);
    json["written_mb"].push_back(rank.written_mb);
    if (!gpus) continue;
    json["gpu_percent"].push_back(or_null(rank.gpu_percent));
    json["gpu_memory_mib"].push_back(or_null(rank.gpu_memory_mib));
  }
  append(json);
}

void MetricsLog::write(const Evaluation& line) {
  Json json = {{"step", line.step}, {"epoch", line.epoch}, {"eval_loss", line.loss}};
  if (line.accuracy) json["eval_accuracy"] = *line.accuracy;
  append(json);
}

void MetricsLog::write(const SkippedStep& line) {
  const Json json = {
      {"step", line.step}, {"epoch", line.epoch}, {"event", skipped_step}, {"reason", line.reason}};
  append(json);
}

void MetricsLog::write(const Rollback& line) {
  const Json json = {{"step", line.step},
                     {"epoch", line.epoch},
                     {"event", rollback},
                     {"to_step", line.to_step},
                     {"reason", line.reason}};
  append(json);
}

}  // namespace farandole
