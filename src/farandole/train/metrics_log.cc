#include "farandole/train/metrics_log.h"

#include <string>

#include <nlohmann/json.hpp>

#include "farandole/base/atomic_file.h"
#include "farandole/base/error.h"

namespace farandole {
namespace {

constexpr const char *skipped_step = "skipped step", *rollback = "rollback";

// std::nullopt for a line that a kill cut off, or without a number of its step.
std::optional<std::int64_t> step_of(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  const auto step = json.value("step", nlohmann::json());
  return step.is_number() ? std::optional(step.get<std::int64_t>()) : std::nullopt;
}

std::string lines_up_to(const std::filesystem::path& file, std::int64_t last_step) {
  std::ifstream stream(file);
  std::string kept;
  for (std::string line; std::getline(stream, line);)
    if (const auto step = step_of(line); step && *step <= last_step) kept += line + "\n";
  return kept;
}

}  // namespace

std::int64_t last_logged_step(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::int64_t last = 0;
  for (std::string line; std::getline(stream, line);)
    if (const auto step = step_of(line)) last = *step;
  return last;
}

MetricsEvents count_events(const std::filesystem::path& file) {
  std::ifstream stream(file);
  MetricsEvents events;
  for (std::string line; std::getline(stream, line);) {
    if (line.find("\"event\"") == std::string::npos) continue;
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto event = json.is_object() ? json.value("event", nlohmann::json()) : nlohmann::json();
    if (event == skipped_step) ++events.skipped_steps;
    if (event == rollback) ++events.rollbacks;
  }
  return events;
}

MetricsLog::MetricsLog(const std::filesystem::path& file, std::int64_t last_step) {
  if (std::filesystem::exists(file)) write_file_atomically(file, lines_up_to(file, last_step));
  stream_.open(file, std::ios::app);
  if (!stream_) throw system_error("open", file);
}

void MetricsLog::write(const Training& line) {
  nlohmann::ordered_json json = {{"step", line.step},
                                 {"epoch", line.epoch},
                                 {"loss", line.loss},
                                 {"lr", line.lr},
                                 {"samples_per_s", line.samples_per_s},
                                 {"step_ms", line.step_ms}};
  stream_ << json.dump() << std::endl;
}

void MetricsLog::write(const Resources& line) {
  nlohmann::ordered_json json = {{"step", line.step}, {"epoch", line.epoch}};
  for (const auto& rank : line.ranks) {
    json["cpu_percent"].push_back(rank.cpu_percent);
    json["memory_mib"].push_back(rank.memory_mib);
    json["read_mb"].push_back(rank.read_mb);
    json["written_mb"].push_back(rank.written_mb);
  }
  stream_ << json.dump() << std::endl;
}

void MetricsLog::write(const Evaluation& line) {
  nlohmann::ordered_json json = {{"step", line.step}, {"epoch", line.epoch}, {"eval_loss", line.loss}};
  if (line.accuracy) json["eval_accuracy"] = *line.accuracy;
  stream_ << json.dump() << std::endl;
}

void MetricsLog::write(const SkippedStep& line) {
  const nlohmann::ordered_json json = {
      {"step", line.step}, {"epoch", line.epoch}, {"event", skipped_step}, {"reason", line.reason}};
  stream_ << json.dump() << std::endl;
}

void MetricsLog::write(const Rollback& line) {
  const nlohmann::ordered_json json = {{"step", line.step},
                                       {"epoch", line.epoch},
                                       {"event", rollback},
                                       {"to_step", line.to_step},
                                       {"reason", line.reason}};
  stream_ << json.dump() << std::endl;
}

}  // namespace farandole
