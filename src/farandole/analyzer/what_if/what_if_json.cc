#include "farandole/analyzer/what_if/what_if_json.h"

#include "farandole/analyzer/report/json_values.h"

namespace farandole {
namespace {

using Json = nlohmann::ordered_json;

Json line_json(const CostModel::Line& line) {
  return {
      {"alpha_us", line.alpha_ns * 1e-3},
      {"gbps", line.beta_ns > 0 ? Json(1 / line.beta_ns) : unknown("the cost does not depend on the bytes")}};
}

Json cost_json(const CostModel& model) {
  if (!model.known()) return unknown(model.unknown);
  auto json = line_json(model.line);
  if (model.split_bytes > 0) {
    json["beyond"] = line_json(model.beyond);
    json["beyond"]["from_bytes"] = model.split_bytes;
  }
  json["sizes"] = model.sizes;
  json["samples"] = model.samples;
  json["spread"] = model.spread;
  return json;
}

Json prediction_json(const Prediction& prediction) {
  if (!prediction.unknown.empty())
    return {{"scenario", prediction.scenario.text}, {"unknown", prediction.unknown}};
  return {{"scenario", prediction.scenario.text},
          {"step_ms", prediction.step_ms},
          {"band_ms", json_of(prediction.band)},
          {"change_percent", 100 * prediction.change},
          {"mean_step_ms", prediction.mean_step_ms},
          {"mean_change_percent", 100 * prediction.mean_change},
          {"throughput_samples_per_s", prediction.throughput.value ? Json(*prediction.throughput.value)
                                                                   : unknown(prediction.throughput.unknown)},
          {"notes", prediction.notes}};
}

Json held_out_json(const HeldOutResult& run) {
  Json json = {{"path", run.path.string()}, {"scenario", run.scenario.text}};
  if (!run.unknown.empty()) {
    json["unknown"] = run.unknown;
    return json;
  }
  json["predicted_ms"] = run.predicted_ms;
  json["band_ms"] = json_of(run.band);
  json["measured_ms"] = run.measured_ms;
  json["ci95"] = json_of(run.measured_ci95);
  json["error_percent"] = 100 * run.error;
  return json;
}

}  // namespace

Json what_if_json(const Replay& replay, const std::vector<Prediction>& predictions) {
  if (!replay.known()) return unknown(replay.graph.unknown);
  const auto& graph = replay.graph;
  auto scenarios = Json::array();
  for (const auto& prediction : predictions) scenarios.push_back(prediction_json(prediction));
  return {{"step_ms", replay.measured_ms},
          {"replay_error_percent", 100 * replay.error},
          {"reduction", graph.caller_driven ? "passing" : "thread"},
          {"buckets", graph.buckets},
          {"gradients", graph.gradients.size()},
          {"cost", cost_json(graph.part)},
          {"update_cost", cost_json(graph.update)},
          {"wake_us", graph.wake_ns * 1e-3},
          {"scenarios", scenarios},
          {"notes", graph.notes}};
}

Json validation_json(const std::vector<Validation>& validations) {
  auto all = Json::array();
  for (const auto& validation : validations) {
    auto runs = Json::array();
    for (const auto& run : validation.runs) runs.push_back(held_out_json(run));
    const auto figure = [](const std::optional<double>& error) {
      return error ? Json(100 * *error) : unknown("no run could be predicted");
    };
    all.push_back({{"base", validation.base.string()},
                   {"base_step_ms", json_of(validation.base_ms)},
                   {"median_error_percent", figure(validation.median_error)},
                   {"p95_error_percent", figure(validation.p95_error)},
                   {"runs", runs}});
  }
  return all;
}

}  // namespace farandole
