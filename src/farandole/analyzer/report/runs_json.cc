#include "farandole/analyzer/report/report_json.h"

namespace farandole {
namespace {

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

Json forecast_json(const Scaling& scaling) {
  if (!scaling.no_forecast.empty()) return unknown(scaling.no_forecast);
  auto points = Json::array();
  for (const auto& point : scaling.forecast)
    points.push_back(
        {{"ranks", point.ranks}, {"efficiency", point.efficiency}, {"band", json_of(point.band)}});
  return points;
}

}  // namespace

Json prediction_json(const Prediction& prediction) {
  if (!prediction.unknown.empty())
    return {{"scenario", prediction.scenario.text}, {"unknown", prediction.unknown}};
  return {{"scenario", prediction.scenario.text},
          {"step_ms", prediction.step_ms},
          {"band_ms", json_of(prediction.band)},
          {"change_percent", 100 * prediction.change},
          {"mean_step_ms", prediction.mean_step_ms},
          {"mean_change_percent", 100 * prediction.mean_change},
          {"throughput_samples_per_s", json_of(prediction.throughput)},
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

Json what_if_json(const RunReport& run) {
  const auto& replay = *run.replay;
  if (!replay.known()) return unknown(replay.graph.unknown);
  const auto& graph = replay.graph;
  auto scenarios = Json::array();
  for (const auto& prediction : run.what_if) scenarios.push_back(prediction_json(prediction));
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

Json scaling_json(const Scaling& scaling) {
  if (!scaling.unknown.empty()) return unknown(scaling.unknown);
  auto points = Json::array();
  for (const auto& point : scaling.points)
    points.push_back({{"ranks", point.ranks},
                      {"step_ms", point.step_ms},
                      {"efficiency", point.efficiency},
                      {"ci95", json_of(point.ci95)},
                      {"runs", point.runs},
                      {"compute_scaling", json_of(point.compute_scaling)}});
  const auto& law = scaling.law;
  const auto parameter = [](double value, const Range& range) {
    return Json{{"value", value}, {"ci95", json_of(range)}};
  };
  const Json fit = {
      {"amdahl", {{"serial", parameter(law.amdahl, scaling.amdahl)}}},
      {"gustafson", {{"serial", parameter(law.gustafson, scaling.gustafson)}}},
      {"usl",
       {{"contention", parameter(law.contention, scaling.contention)},
        {"coherency", parameter(law.coherency, scaling.coherency)}}},
      {"forecast_by", scaling.model.empty() ? unknown(scaling.no_forecast) : Json(scaling.model)}};
  return {{"mode", scaling.mode},
          {"base_ranks", scaling.base_ranks},
          {"holds_variation_between_runs", scaling.repeated},
          {"points", points},
          {"left_out", scaling.left_out},
          {"fit", fit},
          {"forecast", forecast_json(scaling)},
          {"worth_until_ranks",
           scaling.worth_until_ranks > 0
               ? Json(scaling.worth_until_ranks)
               : unknown(scaling.no_forecast.empty() ? "not within 1024 times the largest size"
                                                     : scaling.no_forecast)}};
}

Json comparison_json(const Report& report) {
  auto differences = Json::array();
  for (const auto& difference : report.comparison->differences)
    differences.push_back({{"name", difference.name},
                           {"now", json_of(difference.now)},
                           {"before", json_of(difference.before)},
                           {"change", json_of(difference.change)},
                           {"relative", difference.relative},
                           {"ci95", difference.ci95 ? json_of(*difference.ci95)
                                                    : unknown("fewer than 6 steps, or a figure is unknown")},
                           {"verdict", verdict_text(difference)}});
  auto against = Json::array();
  for (const auto& path : report.against) against.push_back(path.string());
  return {{"against", against},
          {"verdict", report.comparison->verdict},
          {"holds_variation_between_runs", report.comparison->between_runs},
          {"differences", differences}};
}

}  // namespace farandole
