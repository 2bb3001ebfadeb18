#include "farandole/analyzer/report/table.h"

#include <algorithm>
#include <fmt/format.h>

#include "farandole/analyzer/report/formatting.h"

namespace farandole {
namespace {

constexpr std::size_t host_width = 16;

std::string bandwidth(double gbps) {
  if (gbps >= 1e5) return fmt::format("{:.1e}", gbps);
  return gbps > 0 && gbps < 0.095 ? fmt::format("{:.2g}", gbps) : fmt::format("{:.2f}", gbps);
}

std::string size_or_nothing(double bytes) {
  return bytes > 0 ? size_text(bytes) : "–";
}

// Seconds as a percentage of the window, without the unit.
CellFormat of_window(const RunMetrics& metrics, std::string (*text)(double)) {
  return [seconds = metrics.window_ns() * 1e-9, text](const Json& value) {
    return seconds > 0 ? text(value.get<double>() / seconds) : "–";
  };
}

std::string number_of_percent(double fraction) {
  return percent(fraction);
}

Json rows_of(const std::vector<const RankMetrics*>& ranks, const RunMetrics& metrics) {
  auto rows = Json::array();
  for (const auto* rank : ranks) rows.push_back(rank_json(*rank, metrics));
  return rows;
}

std::string plain_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_float() ? fmt::format("{}", value.get<double>()) : json_text(value);
}

const Column rank_column{"rank", "/rank"};
Column host_column(const char* label = "host", std::size_t width = host_width) {
  return {label, "/host", {}, width, false, "?"};
}

}  // namespace

CellFormat as(std::string (*text)(double), double factor) {
  return [=](const Json& value) { return text(factor * value.get<double>()); };
}

std::string cell_text(const Column& column, const Json& row) {
  const Json::json_pointer path(column.path);
  if (!row.contains(path)) return column.unknown;
  const auto& value = row.at(path);
  if (!column.path.empty() && value.is_object()) return column.unknown;
  return column.format ? column.format(value) : plain_text(value);
}

std::string text_of(const Table& table, const Style& style, std::size_t most) {
  std::vector<std::string> header;
  for (const auto& column : table.columns)
    if (!column.wide) header.push_back(column.label);
  TextTable text(header, table.left);
  const auto shown = std::min(most, table.rows.size());
  for (std::size_t i = 0; i < shown; ++i) {
    std::vector<std::string> cells;
    for (const auto& column : table.columns)
      if (!column.wide)
        cells.push_back(
            shortened(cell_text(column, table.rows[i]), column.width > 0 ? column.width : SIZE_MAX));
    text.add(std::move(cells));
  }
  if (shown == table.rows.size()) return text.text(style);
  return text.text(style) +
         style.dim(fmt::format("  and {} more; --format json lists all\n", table.rows.size() - shown));
}

Table gpu_table(const RunMetrics& metrics, const std::vector<const RankMetrics*>& ranks) {
  const auto share = as(number_of_percent);
  Table table{{rank_column,
               host_column(),
               {"utilization", "/gpu/utilization", share},
               {"compute", "/gpu/compute", share},
               {"communication only", "/gpu/communication_only", share},
               {"copies only", "/gpu/memcpy_only", share},
               {"idle", "/gpu/idle", share}},
              2,
              Json::array()};
  for (const auto* rank : ranks) {
    if (rank->gpu) table.rows.push_back(rank_json(*rank, metrics));
    for (const auto& [device, times] : rank->devices) {
      auto of_device = *rank;
      of_device.gpu = times;
      of_device.devices.clear();
      table.rows.push_back(rank_json(of_device, metrics));
      table.rows.back()["rank"] = fmt::format("{}: GPU {}", rank->rank, device);
    }
  }
  return table;
}

namespace {

// "backward", or the largest of several with its percentage, as far as they are known.
std::string phases_of_kernel(const Json& row) {
  const auto& phases = row["phases_s"];
  std::string most;
  double largest = 0;
  for (const auto& [phase, seconds] : phases.items())
    if (seconds.is_number() && seconds.get<double>() > largest) most = phase, largest = seconds.get<double>();
  const double part = largest / row["total_s"].get<double>();
  return most.empty() ? "–" : part > 0.995 ? most : fmt::format("{} {:.0f} %", most, 100 * part);
}

std::string launcher_of_kernel(const Json& row) {
  if (!row.contains("launched_by")) return "–";
  const auto others = row["launched_by_count"].get<std::size_t>() - 1;
  return shortened(row["launched_by"][0]["name"].get<std::string>(), 24) +
         (others > 0 ? fmt::format(" +{}", others) : "");
}

}  // namespace

Table kernel_table(const RunReport& run) {
  Table table{{{"kernel", "/name", [](const Json& name) { return kernel_text(name.get<std::string>()); }, 40},
               {"calls", "/calls"},
               {"total", "/total_s", as(time_text, 1e6)},
               {"of kernels", "/share", as(percent_text)},
               {"launched in", "", phases_of_kernel},
               {"by", "", launcher_of_kernel, 16}},
              1,
              kernel_rows(run)};
  if (std::none_of(table.rows.begin(), table.rows.end(),
                   [](const Json& row) { return row.contains("launched_by"); })) {
    table.columns.pop_back();
    table.columns.front().width = 50;
  }
  return table;
}

Table copy_table(const RunReport& run) {
  return {{{"copies", "/kind"},
           {"calls", "/calls"},
           {"total", "/total_s", as(time_text, 1e6)},
           {"bytes", "/bytes", as(size_text)},
           {"GB/s", "/gbps", as(bandwidth)}},
          1,
          copy_rows(run)};
}

Table phase_table(const RunMetrics& metrics, const std::vector<const RankMetrics*>& ranks) {
  Table table{{rank_column, host_column()}, 2, rows_of(ranks, metrics)};
  for (const auto phase : phase_names)
    table.columns.push_back(
        {std::string(phase), "/phases_s/" + std::string(phase), of_window(metrics, number_of_percent)});
  if (metrics.ranks.size() < 2) return table;
  Json all = {{"rank", "all"}, {"host", ""}};
  for (std::size_t i = 0; i < phase_count; ++i) {
    auto seconds = metrics.phase_fraction(i);
    if (seconds.value) *seconds.value *= metrics.window_ns() * 1e-9;
    all["phases_s"][std::string(phase_names[i])] = json_of(seconds);
  }
  table.rows.push_back(std::move(all));
  return table;
}

Table lateness_table(const RunReport& run, const std::vector<const RankMetrics*>& ranks) {
  Table table{{rank_column,
               host_column(),
               {"median", "/lateness_ms/median", as(ms_text), 0, false, "unknown"},
               {"p95", "/lateness_ms/p95", as(ms_text), 0, false, "unknown"},
               {"pattern", "/pattern"},
               {"delayed in", "/phase"}},
              2,
              rows_of(ranks, run.metrics)};
  for (const auto& straggler : run.stragglers)
    for (auto& row : table.rows)
      if (row["rank"] == run.metrics.ranks[straggler.rank_index].rank)
        row.update({{"pattern", name_of(straggler.pattern)},
                    {"phase", straggler.phase.empty() ? "unknown" : straggler.phase}});
  return table;
}

Table rank_table(const RunReport& run) {
  const auto part = of_window(run.metrics, percent_text);
  return {{rank_column,
           host_column(),
           {"compute", "/compute_s", part},
           {"communication", "/communication_s", part},
           {"overlap", "/overlap_s", part},
           {"exposed", "/exposed_s", part},
           {"waiting", "/wait_s", part},
           {"other", "/other_s", part},
           {"idle", "/idle_s", part},
           {"late, median", "/lateness_ms/median", as(ms_text)},
           {"late, p95", "/lateness_ms/p95", as(ms_text)}},
          2,
          rank_rows(run)};
}

Table resource_table(const RunReport& run) {
  constexpr std::size_t most_ranks = 16;
  const auto whole = [](const Json& value) { return with_thousands(value.get<double>()); };
  Table table{{rank_column, host_column()}, 2, resource_rows(run)};
  // Only columns of which something is known.
  const auto rows = table.rows;
  const auto column = [&](const char* label, const char* key) {
    if (std::any_of(rows.begin(), rows.end(), [&](const Json& row) { return row.contains(key); }))
      table.columns.push_back({label, std::string("/") + key, whole});
  };
  column("CPU %", "cpu_percent");
  column("memory MiB", "memory_mib");
  column("read MB", "read_mb");
  column("written MB", "written_mb");
  column("GPU %", "gpu_percent");
  column("GPU memory MiB", "gpu_memory_mib");
  if (rows.size() <= most_ranks) return table;
  Json least = {{"rank", "least"}, {"host", fmt::format("of {} ranks", rows.size())}};
  auto average = least, most = least;
  average["rank"] = "mean";
  most["rank"] = "most";
  for (const auto& [label, path, format, width, wide, unknown] : table.columns) {
    const auto key = path.substr(1);
    std::vector<double> values;
    for (const auto& row : rows)
      if (row.contains(key) && row[key].is_number()) values.push_back(row[key].get<double>());
    if (key == "rank" || values.empty()) continue;
    least[key] = *std::min_element(values.begin(), values.end());
    average[key] = mean(values);
    most[key] = *std::max_element(values.begin(), values.end());
  }
  table.rows = {least, average, most};
  return table;
}

Table node_table(const RunReport& run) {
  const auto part = [seconds = run.metrics.window_ns() * 1e-9](const char* key) {
    return [=](const Json& row) {
      const auto& value = row[key];
      return value.is_number() ? percent(value.get<double>() / (seconds * row["ranks"].get<double>())) : "–";
    };
  };
  Table table{{host_column("node", 24),
               {"ranks", "/ranks"},
               {"compute", "", part("compute_s")},
               {"communication", "", part("communication_s")},
               {"overlap", "/overlap", as(number_of_percent)},
               {"waiting", "", part("wait_s")},
               {"late, median", "/lateness_ms/median", as(ms_text), 0, false, "unknown"},
               {"p95", "/lateness_ms/p95", as(ms_text), 0, false, "unknown"}},
              1,
              node_rows(run)};
  auto& rows = table.rows.get_ref<Json::array_t&>();
  const Json::json_pointer median("/lateness_ms/median");
  if (rows.size() > many_nodes)
    std::stable_sort(rows.begin(), rows.end(), [&](const Json& a, const Json& b) {
      return a.value(median, 0.0) > b.value(median, 0.0);
    });
  return table;
}

Table collective_table(const RunReport& run) {
  // Of runs with steps, lateness stands in a table of its own.
  const bool with_steps = run.metrics.window.no_steps.empty();
  return {{{"collective", "/name", {}, with_steps ? 22U : 16U},
           {"operation", "/operation", {}, 14},
           {"count", "/count"},
           {"size", "/bytes", as(size_or_nothing)},
           {"median", "/median_us", as(time_text)},
           {"mean wait", "/wait_us", as(time_text)},
           {"transfer", "/transfer_us", as(time_text)},
           {"algbw", "/algbw_gbps", as(bandwidth)},
           {"busbw", "/busbw_gbps", as(bandwidth)},
           {"of proven", "/of_proven_bandwidth", as(percent_text), 0, true},
           {"last", "/last_rank", [](const Json& rank) { return "rank " + json_text(rank); }, 0, with_steps},
           {"of its calls", "/last_share", as(percent_text), 0, true}},
          2,
          collective_rows(run)};
}

Table mpi_call_table(const RunReport& run) {
  const double all = run.metrics.window_ns() * 1e-9 * static_cast<double>(run.metrics.ranks.size());
  return {{{"MPI calls of the program", "/function", {}, 28},
           {"calls", "/count"},
           {"total size", "/bytes", as(size_text)},
           {"median", "/median_us", as(time_text)},
           {"of the ranks' time", "/total_s",
            [=](const Json& seconds) {
              return all > 0 ? percent_text(seconds.get<double>() / all) : "unknown";
            }}},
          1,
          mpi_call_rows(run)};
}

Json scaling_rows(const Scaling& scaling) {
  auto rows = Json::array();
  if (!scaling.unknown.empty()) return rows;
  const auto json = scaling_json(scaling);
  for (auto row : json["points"]) {
    row["kind"] = "measured";
    rows.push_back(std::move(row));
  }
  if (json["forecast"].is_array())
    for (auto row : json["forecast"]) {
      row["kind"] = "forecast";
      row["ci95"] = row["band"];
      rows.push_back(std::move(row));
    }
  return rows;
}

Table scaling_table(const Scaling& scaling) {
  const auto interval = [](const Json& range) {
    const double low = range[0].get<double>(), high = range[1].get<double>();
    return low == high ? "–" : percent(low) + " to " + percent(high) + " %";
  };
  return {{{"ranks", "/ranks"},
           {"runs", "/runs", {}, 0, false, "forecast"},
           {"step", "/step_ms", as(ms_text)},
           {"efficiency", "/efficiency", as(percent_text)},
           {"95 % interval", "/ci95", interval},
           {"compute scaling", "/compute_scaling", as(percent_text)}},
          0,
          scaling_rows(scaling)};
}

Table comparison_table(const Comparison& comparison) {
  Table table{{{"figure", "/0"},
               {"before", "/1"},
               {"now", "/2"},
               {"change", "/3"},
               {"95 % interval", "/4"},
               {"verdict", "/5"}},
              1,
              Json::array()};
  for (const auto& one : comparison.differences)
    if (!one.is_nothing())
      table.rows.push_back({one.name, value_text(one, one.before), value_text(one, one.now),
                            one.change.value ? change_text(one, *one.change.value) : "–", interval_text(one),
                            trend_text(one)});
  return table;
}

}  // namespace farandole
