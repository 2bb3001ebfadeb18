#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "farandole/analyzer/report/table.h"
#include "farandole/base/error.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/base/text/phrases.h"

namespace farandole {
namespace {

// Writes rows of the JSON report as comma-separated values (RFC 4180). `columns` has words such as "rank" or
// "low=ci95/0", a column's name and the path of its value. The column "run" is the path of the run.
class Csv {
 public:
  explicit Csv(std::string_view columns) {
    while (!columns.empty()) {
      const auto word = columns.substr(0, columns.find(' '));
      columns.remove_prefix(std::min(word.size() + 1, columns.size()));
      const auto name = word.substr(0, word.find('='));
      const auto path = word.substr(word == name ? 0 : name.size() + 1);
      columns_.push_back({std::string(name), "/" + std::string(path), {}, 0, false, ""});
      cell(columns_.back().label);
    }
    end();
  }

  std::string run;
  void row(const Json& row) {
    for (const auto& column : columns_) cell(column.path == "/run" ? run : cell_text(column, row));
    end();
  }
  std::string take() { return std::move(text_); }

 private:
  // Names come from traces that anybody may have made. A spreadsheet computes a cell that begins like a
  // formula, unless an apostrophe precedes it, and a terminal obeys control characters.
  void cell(const std::string& value) {
    auto text = printable(value);
    const bool formula =
        !text.empty() && std::string_view("=+-@").find(text.front()) != std::string_view::npos;
    if (formula && !parse_number<double>(text)) text.insert(0, 1, '\'');
    const bool quoted = text.find_first_of(",\"") != std::string::npos;
    if (quoted) text_ += '"';
    for (const char c : text) text_.append(quoted && c == '"' ? 2 : 1, c);
    text_ += quoted ? "\"," : ",";
  }
  void end() {
    text_.back() = '\r';
    text_ += '\n';
  }

  std::vector<Column> columns_;
  std::string text_;
};

// Calls `add` for each run.
void for_runs(const Report& report, Csv& csv, auto add) {
  for (const auto& run : report.runs) {
    csv.run = run.path.string();
    add(run);
  }
}

template <Json (*rows)(const RunReport&)>
void rows_of_runs(const Report& report, Csv& csv) {
  for_runs(report, csv, [&](const RunReport& run) {
    for (const auto& row : rows(run)) csv.row(row);
  });
}

void add_runs(const Report& report, Csv& csv) {
  for_runs(report, csv, [&](const RunReport& run) { csv.row(run_json(run)); });
}

void add_phases(const Report& report, Csv& csv) {
  for_runs(report, csv, [&](const RunReport& run) {
    for (const auto& rank : run.metrics.ranks)
      for (std::size_t i = 0; i < phase_count; ++i) {
        const auto seconds = run.metrics.phase_seconds(rank, i);
        const auto fraction =
            Figure::ratio(seconds.value.value_or(0) * 1e9, run.metrics.window_ns(), empty_window);
        csv.row({{"rank", rank.rank},
                 {"phase", phase_names[i]},
                 {"seconds", json_of(seconds)},
                 {"fraction", json_of(seconds.value ? fraction : seconds)}});
      }
  });
}

void add_steps(const Report& report, Csv& csv) {
  for_runs(report, csv, [&](const RunReport& run) {
    const auto& window = run.metrics.window;
    const auto outliers = window.outliers();
    for (std::size_t i = 0; i < window.steps.size(); ++i) {
      const auto& totals = run.metrics.steps[i];
      const auto known = [](double ns, const std::string& why_not) {
        return json_of(why_not.empty() ? Figure::known(ns * 1e-9) : Figure::because(why_not));
      };
      csv.row({{"step", window.step_numbers[i]},
               {"start_s", static_cast<double>(window.steps[i].start) * 1e-9},
               {"end_s", static_cast<double>(window.steps[i].end) * 1e-9},
               {"longest_ms", window.step_ms[i]},
               {"period_ms", window.periods_ms[i]},
               {"compute_s", known(totals.compute, run.metrics.no_compute)},
               {"communication_s", totals.communication * 1e-9},
               {"overlap_s", known(totals.overlap, run.metrics.no_compute)},
               {"waiting_s", known(totals.waiting, run.metrics.no_waiting)},
               {"outlier", std::binary_search(outliers.begin(), outliers.end(), i)}});
    }
  });
}

void add_lateness(const Report& report, Csv& csv) {
  for_runs(report, csv, [&](const RunReport& run) {
    for (const auto& rank : run.metrics.ranks)
      for (std::size_t i = 0; i < rank.step_lateness_ms.size(); ++i)
        csv.row({{"step", run.metrics.window.step_numbers[rank.lateness_steps[i]]},
                 {"rank", rank.rank},
                 {"lateness_ms", rank.step_lateness_ms[i]}});
  });
}

void add_critical_path(const Report& report, Csv& csv) {
  for_runs(report, csv, [&](const RunReport& run) {
    const auto path = critical_path_json(run);
    if (!path.contains("ranks")) return;
    for (const auto& rank : path["ranks"])
      for (const auto& [phase, seconds] : rank["phases_s"].items())
        csv.row({{"rank", rank["rank"]}, {"phase", phase}, {"seconds", seconds}});
    csv.row({{"phase", "transfer"}, {"seconds", path["transfer_s"]}});
  });
}

void add_gpus(const Report& report, Csv& csv) {
  for_runs(report, csv, [&](const RunReport& run) {
    for (const auto& rank : run.metrics.ranks)
      if (rank.gpu) csv.row(rank_json(rank, run.metrics));
  });
}

void add_scaling(const Report& report, Csv& csv) {
  for (const auto& row : scaling_rows(report.scaling)) csv.row(row);
}

void add_scaling_fits(const Report& report, Csv& csv) {
  const auto scaling = scaling_json(report.scaling);
  if (!scaling.contains("fit")) return;
  for (const auto* law : {"amdahl", "gustafson", "usl"})
    for (const auto& [parameter, fit] : scaling["fit"][law].items())
      csv.row({{"law", law}, {"parameter", parameter}, {"value", fit["value"]}, {"ci95", fit["ci95"]}});
}

void add_comparison(const Report& report, Csv& csv) {
  if (!report.comparison && report.no_comparison.empty())
    throw UserError("--table comparison needs --against RUN");
  if (!report.comparison) return;
  const auto comparison = comparison_json(report);
  for (const auto& row : comparison["differences"]) csv.row(row);
}

void add_what_if(const Report& report, Csv& csv) {
  bool any = false;
  for_runs(report, csv, [&](const RunReport& run) {
    for (const auto& prediction : run.what_if) {
      any = true;
      auto row = prediction_json(prediction);
      if (prediction.unknown.empty())
        row.update({{"change", prediction.change}, {"mean_change", prediction.mean_change}});
      csv.row(row);
    }
  });
  if (!any) throw UserError("--table what-if needs --what-if CONDITIONS");
}

void add_validation(const Report& report, Csv& csv) {
  if (report.validations.empty()) throw UserError("--table validation needs --validate RUN");
  for (const auto& validation : report.validations)
    for (const auto& run : validation.runs) {
      auto row = held_out_json(run);
      row["base"] = validation.base.string();
      if (run.unknown.empty()) row["error"] = run.error;
      csv.row(row);
    }
}

struct CsvTable {
  std::string_view name;
  void (*add)(const Report&, Csv&);
  std::string_view columns;
};

constexpr CsvTable tables[] = {
    {"collectives", rows_of_runs<collective_rows>,
     "run name operation count bytes median_us wait_us transfer_us transfer_p10_us transfer_p90_us algbw_gbps "
     "busbw_gbps of_proven_bandwidth total_s last_rank last_share late_us"},
    {"comparison", add_comparison, "figure=name relative before now change low=ci95/0 high=ci95/1 verdict"},
    {"critical-path", add_critical_path, "run rank phase seconds"},
    {"findings", rows_of_runs<finding_rows>, "run title evidence gain_percent change"},
    {"gpu", add_gpus,
     "run rank host window_s=gpu/seconds/window kernels_s=gpu/seconds/kernels compute_s=gpu/seconds/compute "
     "communication_only_s=gpu/seconds/communication_only memcpy_only_s=gpu/seconds/memcpy_only "
     "idle_s=gpu/seconds/idle"},
    {"lateness", add_lateness, "run step rank lateness_ms"},
    {"losses", rows_of_runs<loss_rows>, "run loss=name fraction hours"},
    {"mpi-calls", rows_of_runs<mpi_call_rows>, "run function count bytes median_us total_s"},
    {"nodes", rows_of_runs<node_rows>,
     "run node=host ranks compute_s communication_s overlap exposed_s waiting_s=wait_s other_s idle_s "
     "lateness_median_ms=lateness_ms/median lateness_p95_ms=lateness_ms/p95 gpu_utilization=gpu/utilization"},
    {"phases", add_phases, "run rank phase seconds fraction"},
    {"ranks", rows_of_runs<rank_rows>,
     "run rank host compute_s communication_s overlap_s exposed_s waiting_s=wait_s transfer_s other_s idle_s "
     "lateness_median_ms=lateness_ms/median lateness_p95_ms=lateness_ms/p95 gpu_kernels_s=gpu/seconds/kernels "
     "gpu_idle_s=gpu/seconds/idle"},
    {"runs", add_runs,
     "run ranks nodes steps warmup_steps window_s throughput_samples_per_s step_median_ms=step_ms/median "
     "step_p95_ms=step_ms/p95 overlap=communication/overlap communication_fraction=communication/fraction "
     "exposed_fraction=communication/exposed_fraction wait_fraction=communication/wait_fraction "
     "parallel=efficiency/parallel load_balance=efficiency/load_balance communication=efficiency/communication "
     "serialisation=efficiency/serialisation transfer=efficiency/transfer verdict"},
    {"scaling", add_scaling, "ranks kind runs step_ms efficiency low=ci95/0 high=ci95/1 compute_scaling"},
    {"scaling-fits", add_scaling_fits, "law parameter value low=ci95/0 high=ci95/1"},
    {"steps", add_steps,
     "run step start_s end_s longest_ms period_ms compute_s communication_s overlap_s waiting_s outlier"},
    {"stragglers", rows_of_runs<straggler_rows>, "run rank host pattern phase lateness_ms late_steps"},
    {"validation", add_validation,
     "base run=path scenario predicted_ms predicted_low_ms=band_ms/0 predicted_high_ms=band_ms/1 measured_ms "
     "measured_low_ms=ci95/0 measured_high_ms=ci95/1 error unknown"},
    {"wait-causes", rows_of_runs<wait_cause_rows>, "run rank phase seconds"},
    {"what-if", add_what_if,
     "run scenario step_ms low=band_ms/0 high=band_ms/1 change mean_step_ms mean_change "
     "throughput_samples_per_s notes unknown"}};

}  // namespace

std::string report_csv(const Report& report, std::string_view table) {
  std::vector<std::string_view> names;
  for (const auto& one : tables) {
    names.push_back(one.name);
    if (one.name != table) continue;
    Csv csv(one.columns);
    one.add(report, csv);
    return csv.take();
  }
  throw UserError(fmt::format("--table {} is not known; use one of {}", table, fmt::join(names, ", ")));
}

}  // namespace farandole
