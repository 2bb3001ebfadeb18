#include <algorithm>
#include <cctype>
#include <cmath>
#include <fmt/format.h>
#include <optional>
#include <string_view>

#include "farandole/analyzer/report/formatting.h"
#include "farandole/analyzer/report/html/charts.h"
#include "farandole/analyzer/report/html/svg.h"
#include "farandole/analyzer/report/report.h"

namespace farandole::html {
namespace {

std::string scaling_section(const Scaling& scaling) {
  if (!scaling.unknown.empty()) return section("Scaling", "Unknown: " + scaling.unknown + ".", " ");
  auto sub = fmt::format("{} scaling against {} rank{}.",
                         scaling.mode == "weak" ? "Weak (same batch per rank)" : "Strong (same global batch)",
                         scaling.base_ranks, scaling.base_ranks == 1 ? "" : "s");
  for (const auto& sentence :
       {left_out_text(scaling), repeats_text(scaling), slower_compute_text(scaling), forecast_text(scaling)})
    sub += " " + sentence;
  return section("Scaling", sub, scaling_chart(scaling) + table_of(scaling_table(scaling)));
}

std::string comparison_section(const Report& report) {
  return section("Against " + against_text(report), report.comparison->verdict,
                 table_of(comparison_table(*report.comparison)));
}

}  // namespace
}  // namespace farandole::html

namespace farandole {
namespace {

using html::escaped;
using html::section;
using html::table_of;

std::string card(const std::string& name, const std::string& value, const std::string& more) {
  return fmt::format(
      R"(<div class="card"><div class="name">{}</div><div class="value">{}</div><div class="more">{}</div></div>)",
      escaped(name), escaped(value), escaped(more));
}

std::string card(const std::string& name, const Figure& figure, const std::optional<Range>& range) {
  if (!figure.value) return "";
  return card(name, percent_text(*figure.value),
              range ? fmt::format("95 %: {:.1f} to {:.1f}", 100 * range->low, 100 * range->high) : "");
}

// A path in a link, where for example # and % have a meaning of their own.
std::string url_path(std::string_view path) {
  std::string result;
  for (const char byte : path) {
    const bool plain = std::isalnum(static_cast<unsigned char>(byte)) != 0 ||
                       std::string_view("/-._~").find(byte) != std::string_view::npos;
    result += plain ? std::string(1, byte) : fmt::format("%{:02X}", static_cast<unsigned char>(byte));
  }
  return result;
}

// Escapes the text. Options such as "--batch" are written as code, so that lines are not broken in them.
std::string with_options(const std::string& text) {
  std::string result;
  const auto safe = escaped(text);
  for (std::size_t at = 0; at < safe.size();) {
    const auto begin = std::min(safe.find("--", at), safe.size());
    const auto end = std::min(safe.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", begin), safe.size());
    result += safe.substr(at, begin - at);
    if (begin < end) result += "<code>" + safe.substr(begin, end - begin) + "</code>";
    at = std::max(end, begin);
  }
  return result;
}

// Writes one run, section by section.
class RunPage {
 public:
  RunPage(const RunReport& run, const std::filesystem::path& output)
      : run_(run), metrics_(run.metrics), output_(output) {}

  std::string text(std::size_t index) {
    std::string text = fmt::format("<article id=\"run{}\">", index) + header() + cards() + unknown_figures();
    text += section("Training", training_text(), html::training_charts(run_.log));
    text += section(
        "Where the time goes",
        "From 100 % of the ranks' time in the window down to useful compute. Waiting is split by the cause "
        "that delayed the last rank.",
        metrics_.window.length() > 0 && metrics_.no_compute.empty() ? html::waterfall_chart(run_) : "");
    text += section(
        "What to do",
        "The largest loss comes first. A gain is how much shorter the run would be if the whole loss were "
        "removed.",
        findings());
    text +=
        section("Efficiency", "Each value is the product of the two values below it. 100 % means no loss.",
                metrics_.size() > 1 ? html::efficiency_tree(metrics_) : "");
    text +=
        section("Phases by rank",
                "Training thread, in percent of the window. Move the pointer over a bar to see its value.",
                html::phases_chart(metrics_));
    text += section("Step times", "The longest rank of each step.", html::step_distribution_chart(metrics_));
    text += section(
        "Over the run",
        "Lines are means. If several steps share a pixel, the band shows the lowest and the highest value.",
        html::steps_chart(metrics_));
    text += section(
        "Late ranks",
        fmt::format(
            "In each step, the latest arrival at a collective relative to the first rank. The clock error "
            "is {}.",
            ms_text(metrics_.clock_floor_ms)),
        late_ranks());
    if (metrics_.size() > 1 || !metrics_.mpi_calls.empty())
      text += section(
          "Communication",
          metrics_.overlap.value
              ? fmt::format(
                    "{} of the time, of which compute hides {}; {} of the time is exposed. Bandwidths are in GB/s.",
                    percent_text(metrics_.fraction(&RankMetrics::communication).value.value_or(0)),
                    percent_text(*metrics_.overlap.value),
                    percent_text(metrics_.fraction(&RankMetrics::exposed).value.value_or(0)))
              : metrics_.overlap.unknown,
          html::bandwidth_chart(metrics_) +
              (metrics_.collectives.empty() ? "" : table_of(collective_table(run_), 100)) +
              (metrics_.mpi_calls.empty() ? "" : table_of(mpi_call_table(run_), 100)));
    if (has_gpu_part(run_))
      text += section("GPU", metrics_.no_gpu.empty() ? gpu_text() : metrics_.no_gpu,
                      metrics_.no_gpu.empty() ? html::gpu_chart(metrics_) + gpu_tables() : " ");
    text += section("Resources", run_.resources.text(),
                    run_.resources.ranks.empty() ? "" : table_of(resource_table(run_)));
    text += section("Critical path", "The chain of work across ranks that determines the run time.", path());
    text += section("Trace", "", trace());
    if (metrics_.nodes > 1 && metrics_.window.length() > 0)
      text += section("By node",
                      "Mean of its ranks, in percent of the window; overlap in percent of communication.",
                      table_of(node_table(run_), 128));
    text += section("By rank", "",
                    fmt::format("<details{}><summary>all {} ranks</summary>{}</details>",
                                metrics_.ranks.size() <= 8 ? " open" : "", metrics_.ranks.size(),
                                table_of(rank_table(run_))));
    text += section("Notes", "", notes());
    return text + "</article>\n";
  }

 private:
  std::string header() const {
    const auto& facts = run_.facts;
    std::string line = ranks_text(metrics_);
    if (metrics_.nodes > 0)
      line += fmt::format(" on {} node{}", metrics_.nodes, metrics_.nodes == 1 ? "" : "s");
    if (facts.device) line += " · " + *facts.device;
    if (facts.parameters)
      line += " · " + with_thousands(static_cast<double>(*facts.parameters)) + " parameters";
    if (facts.global_batch) line += " · global batch " + with_thousands(*facts.global_batch);
    line += fmt::format(" · {} steps in {:.2f} s, {} warm-up steps left out", metrics_.window.steps.size(),
                        std::min(metrics_.window_ns() * 1e-9, 1e12), metrics_.window.warmup_steps);
    if (facts.started) line += " · started " + *facts.started;
    std::string program = facts.program ? "<p class=\"facts\">" + escaped(*facts.program) + "</p>" : "";
    if (facts.sharding) program += "<p class=\"facts\">" + escaped(*facts.sharding) + "</p>";
    if (run_.goodput && run_.goodput->unknown.empty())
      program += "<p class=\"facts\">goodput " + escaped(goodput_text(*run_.goodput)) + "</p>";
    return fmt::format(
        "<header><p class=\"brand\">FARANDOLE · {}</p><h1 class=\"verdict\">{}</h1><p "
        "class=\"facts\">{}</p>{}</header>\n",
        escaped(run_.path.string()), escaped(run_.verdict), escaped(line), program);
  }

  std::string cards() const {
    std::string text = "<div class=\"cards\">";
    if (metrics_.throughput.value)
      text += card(
          "throughput", with_thousands(*metrics_.throughput.value, *metrics_.throughput.value < 100 ? 1 : 0),
          "samples/s" + (metrics_.throughput_ci95
                             ? fmt::format(", 95 %: {} to {}", with_thousands(metrics_.throughput_ci95->low),
                                           with_thousands(metrics_.throughput_ci95->high))
                             : std::string()));
    else if (metrics_.steps_per_s.value)
      text += card("throughput", with_thousands(*metrics_.steps_per_s.value, 1), "steps/s");
    if (const auto rate = model_rate_of(run_)) {  // The number alone fits into the large type of a card.
      const auto number_and_more = rate->text();
      const auto space = number_and_more.find(' ');
      text += card("model", number_and_more.substr(0, space),
                   number_and_more.substr(space + 1) + "; " + describe_model_flops(run_.facts));
    }
    text += training_cards();
    text += card("parallel efficiency", metrics_.parallel_efficiency, metrics_.parallel_ci95);
    if (metrics_.size() > 1) text += card("communication overlap", metrics_.overlap, metrics_.overlap_ci95);
    const auto& times = metrics_.window.step_ms;
    if (!times.empty())
      text += card("step, median", ms_text(quantile(times, 0.5)), "p95 " + ms_text(quantile(times, 0.95)));
    if (const auto shares = gpu_shares(metrics_); metrics_.no_gpu.empty() && shares)
      text += card("GPU utilization", percent_text(shares->utilization), "");
    text += memory_card();
    return text + "</div>\n";
  }

  std::string memory_card() const {
    const auto& resources = run_.resources;
    if (!resources.used_mib) return "";
    std::string more =
        resources.asked_mib ? fmt::format("of {} GiB asked", gib_text(*resources.asked_mib)) : "";
    if (resources.busy_cores)
      more += (more.empty() ? "" : "; ") + fmt::format("{:.1f}", *resources.busy_cores) +
              (resources.asked_cores ? fmt::format(" of {:.0f}", *resources.asked_cores) : "") +
              " cores busy";
    return card("memory", gib_text(*resources.used_mib) + " GiB", more);
  }

  // The last loss, and the last value of an evaluation other than its loss.
  std::string training_cards() const {
    std::string text;
    if (const auto* loss = run_.log.find("loss"))
      text += card("loss, last", number_text(loss->points().back().last),
                   fmt::format("lowest {} at step {}", number_text(loss->lowest().low),
                               with_thousands(static_cast<double>(loss->lowest().low_step))));
    for (const auto& [name, curve] : run_.log.curves) {
      if (!name.starts_with("eval_") || name == "eval_loss" || curve.empty()) continue;
      const auto& last = curve.points().back();
      return text + card(shortened(name.substr(5), 20) + ", evaluation", number_text(last.last),
                         "at step " + with_thousands(static_cast<double>(last.last_step)));
    }
    return text;
  }

  std::string training_text() const {
    const auto events = events_text(run_.log);
    const bool joined = std::any_of(run_.log.curves.begin(), run_.log.curves.end(), [](const auto& curve) {
      return !curve.curve.empty() && curve.curve.points().front().count > 1;
    });
    return std::string("As the program logged it.") +
           (joined ? " Lines are means, and bands show the lowest and the highest value." : "") +
           (events.empty() ? "" : " Not finite: " + events + ".");
  }

  std::string gpu_text() const {
    const auto idle = idle_text(metrics_);
    return "In percent of the window" + (idle.empty() ? "." : "; " + idle + ".");
  }

  std::string gpu_tables() const {
    constexpr std::size_t most_kernels = 25;
    return (metrics_.kernels.empty() ? "" : table_of(kernel_table(run_), most_kernels)) +
           (metrics_.copies.empty() ? "" : table_of(copy_table(run_)));
  }

  // What a run of this kind could have, and why it does not.
  std::string unknown_figures() const {
    std::string text;
    const auto add = [&](const char* name, const Figure& figure) {
      if (!figure.value)
        text += fmt::format("{}{}: {}", text.empty() ? "Unknown: " : "; ", name, figure.unknown);
    };
    add(metrics_.steps_per_s.value ? "samples/s" : "throughput", metrics_.throughput);
    if (metrics_.parallel_efficiency.value)
      metrics_.size() > 1 ? add("communication overlap", metrics_.overlap) : void();
    else
      add("parallel efficiency", metrics_.parallel_efficiency);
    if (run_.goodput && !run_.goodput->unknown.empty())
      add("goodput", Figure::because(run_.goodput->unknown));
    return text.empty() ? "" : "<p class=\"sub unknown\">" + escaped(text) + ".</p>";
  }

  std::string findings() const {
    if (run_.findings.empty() && !metrics_.no_compute.empty()) return "";
    if (run_.findings.empty()) return "<p class=\"none\">No loss takes 1 % of the time or more.</p>";
    std::string text;
    for (const auto& finding : run_.findings)
      text += fmt::format(
          "<div class=\"finding\"><h3>{} <span class=\"gain\">gain up to {:.1f} "
          "%</span></h3><p>{}.</p><p><b>Advice:</b> "
          "{}.</p></div>",
          escaped(finding.title), finding.gain_percent, escaped(finding.evidence),
          with_options(finding.change));
    return text;
  }

  std::string with_names(std::string map) const {
    if (map.empty()) return map;
    std::string names;
    for (const auto& row : html::rank_rows(metrics_, 128)) names += (names.empty() ? "" : "|") + row.name;
    return map.replace(0, 4, "<svg data-names=\"" + escaped(names) + "\"");
  }

  std::string late_ranks() const {
    const auto map = with_names(html::lateness_map(metrics_));
    if (run_.stragglers.empty())
      return map.empty() ? "" : map + "<p class=\"none\">No rank stands out as late.</p>";
    return map + table_of({{{"rank", "/rank"},
                            {"host", "/host"},
                            {"pattern", "/pattern"},
                            {"delayed in", "/phase", {}, 0, false, "no phase explains it"},
                            {"late steps", "/late_steps"},
                            {"median lateness", "/lateness_ms", as(ms_text)}},
                           4,
                           straggler_rows(run_)},
                          16);
  }

  std::string path() const {
    const auto& path = metrics_.critical_path;
    if (metrics_.ranks.size() < 2 || metrics_.window.length() <= 0) return "";
    if (!path.unknown.empty()) return "<p class=\"none\">Unknown: " + escaped(path.unknown) + ".</p>";
    const auto share = as(percent_text, 1e9 / metrics_.window_ns());
    auto json = critical_path_json(run_);
    Table table{{{"on the path", "/name"}, {"of the window", "/seconds", share}}, 1, Json::array()};
    for (const auto& [phase, seconds] : json["ranks"][0]["phases_s"].items())
      table.columns.push_back({phase, "/phases_s/" + phase, share, 0, false, ""});
    for (std::size_t i = 0; i < std::min<std::size_t>(path.ranks.size(), 12); ++i) {
      table.rows.push_back(json["ranks"][i]);
      table.rows.back()["name"] = name_of_rank(metrics_.ranks[path.ranks[i].rank_index]);
    }
    table.rows.push_back({{"name", "transfer"}, {"seconds", json["transfer_s"]}});
    return table_of(table) +
           fmt::format("<p class=\"sub\">The path changes ranks {}.</p>", times_text(path.changes));
  }

  // nullopt if viewers cannot open a file: the run consists of recorder files, or of one trace per rank.
  std::optional<std::filesystem::path> trace_file() const {
    std::error_code ignored;
    if (run_.path.extension() == ".ftl") return std::nullopt;
    if (!std::filesystem::is_directory(run_.path, ignored)) return run_.path;
    for (const auto* name : {"timeline.json.gz", "timeline.json"})
      if (std::filesystem::exists(run_.path / name, ignored)) return run_.path / name;
    return std::nullopt;
  }

  std::string where_the_trace_is() const {
    const auto file = trace_file();
    if (!file && metrics_.source != TraceSource::farandole)
      return "<p class=\"sub\">Each rank has its own trace.</p>";
    if (!file)
      return fmt::format(
          "<p class=\"sub\">There is no merged trace. <code>farandole timeline merge {}</code> writes one "
          "from the recorder files.</p>",
          escaped(run_.path.string()));
    std::error_code ignored;
    const auto folder = output_.empty() ? std::filesystem::current_path(ignored)
                                        : std::filesystem::absolute(output_, ignored).parent_path();
    const auto link = std::filesystem::relative(*file, folder, ignored);
    return fmt::format(
        "<p class=\"sub\">The trace: <a href=\"{}\">{}</a>; open it in <a "
        "href=\"https://ui.perfetto.dev\">Perfetto</a> or "
        "chrome://tracing and go to these times.</p>",
        url_path((link.empty() ? *file : link).generic_string()),
        escaped((link.empty() ? *file : link).generic_string()));
  }

  // Interesting moments, by their time in the trace.
  std::string trace() const {
    const auto& window = metrics_.window;
    auto text = where_the_trace_is();
    if (window.steps.empty()) return text;
    Table table{
        {{"what", "/0"}, {"step", "/1"}, {"rank", "/2"}, {"from", "/3"}, {"to", "/4"}}, 1, Json::array()};
    const auto add = [&](const std::string& what, std::size_t step, const Json& rank) {
      table.rows.push_back({what, window.step_numbers[step], rank,
                            fmt::format("{:.6f} s", static_cast<double>(window.steps[step].start) * 1e-9),
                            fmt::format("{:.6f} s", static_cast<double>(window.steps[step].end) * 1e-9)});
    };
    const auto longest = std::max_element(window.step_ms.begin(), window.step_ms.end());
    add("the longest step, " + ms_text(*longest), static_cast<std::size_t>(longest - window.step_ms.begin()),
        "");
    const double median = quantile(window.step_ms, 0.5);
    const auto typical =
        std::min_element(window.step_ms.begin(), window.step_ms.end(),
                         [&](double a, double b) { return std::abs(a - median) < std::abs(b - median); });
    add("a typical step, " + ms_text(*typical), static_cast<std::size_t>(typical - window.step_ms.begin()),
        "");
    for (std::size_t i = 0; i < std::min<std::size_t>(run_.stragglers.size(), 5); ++i) {
      const auto& rank = metrics_.ranks[run_.stragglers[i].rank_index];
      const auto latest = std::max_element(rank.step_lateness_ms.begin(), rank.step_lateness_ms.end());
      add("the latest arrival, " + ms_text(*latest),
          rank.lateness_steps[static_cast<std::size_t>(latest - rank.step_lateness_ms.begin())], rank.rank);
    }
    return text + table_of(table);
  }

  std::string notes() const {
    if (metrics_.warnings.empty()) return "";
    std::string text = "<ul class=\"notes\">";
    for (const auto& warning : metrics_.warnings) text += "<li>" + escaped(warning) + "</li>";
    return text + "</ul>";
  }

  const RunReport& run_;
  const RunMetrics& metrics_;
  const std::filesystem::path& output_;
};

}  // namespace

std::string report_html(const Report& report, const std::filesystem::path& output) {
  std::string body;
  if (report.runs.size() > 1) {
    body += "<nav>";
    for (std::size_t i = 0; i < report.runs.size(); ++i)
      body += fmt::format("<a href=\"#run{}\">{}</a>", i, escaped(report.runs[i].path.string()));
    body += "</nav>" + html::scaling_section(report.scaling) + "<br>";
  }
  if (report.comparison) body += html::comparison_section(report) + "<br>";
  for (std::size_t i = 0; i < report.runs.size(); ++i) body += RunPage(report.runs[i], output).text(i);
  body +=
      "<footer>Written by farandole analyze. Definitions: compute is forward, backward and optimizer (on "
      "GPUs: kernels); "
      "overlap is the part of communication during which the rank also computes; waiting ends when the last "
      "rank arrives.</footer>";
  return html::page(report.runs.empty() ? "Farandole" : report.runs.front().verdict, body);
}

}  // namespace farandole
