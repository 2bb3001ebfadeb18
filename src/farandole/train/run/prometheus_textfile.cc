#include "farandole/train/run/prometheus_textfile.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <fmt/format.h>
#include <functional>
#include <iterator>
#include <system_error>
#include <utility>

#include "farandole/base/clock.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/host.h"
#include "farandole/base/log.h"

namespace farandole {
namespace {

constexpr std::int64_t least_interval_ns = 10 * ns_per_second;

// In labels, quotes are also escaped.
std::string escaped(std::string_view text, bool quotes) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || (quotes && c == '"')) result += '\\';
    if (c == '\n')
      result += "\\n";
    else
      result += c;
  }
  return result;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

std::string file_name(std::string_view job, int rank) {
  std::string name(job);
  std::ranges::replace(name, '/', '_');
  return fmt::format("farandole-{}-{}.prom", name, rank);
}

}  // namespace

PrometheusTextfile::PrometheusTextfile(const std::filesystem::path& folder, std::string_view job, int rank)
    : file_(folder / file_name(job, rank)),
      labels_(fmt::format(R"(job_id="{}",node="{}",rank="{}")", escaped(job, true),
                          escaped(host_name(), true), rank)) {}

PrometheusTextfile::~PrometheusTextfile() {
  std::error_code ignored;
  if (published_ns_ != 0) std::filesystem::remove(file_, ignored);
}

void PrometheusTextfile::set(std::string_view name, std::string_view help, Type type, double value) {
  set(name, help, type, labels_, value);
}

void PrometheusTextfile::set_metric(std::string_view name, double value) {
  set("metric", "Last value of a metric of the training, by its name.", Type::gauge,
      fmt::format(R"({},name="{}")", labels_, escaped(name, true)), value);
}

void PrometheusTextfile::set(std::string_view name, std::string_view help, Type type, std::string labels,
                             double value) {
  auto family = families_.find(name);
  if (family != families_.end()) {
    const auto series = family->second.series.find(labels);
    if (series != family->second.series.end()) {
      series->second = value;
      return;
    }
  }
  if (series_ == most_series) {
    if (!std::exchange(warned_of_series_, true))
      log_warning("{} holds {} series, so '{}' and further ones are left out; log fewer metrics",
                  file_.string(), most_series, labels == labels_ ? std::string(name) : labels);
    return;
  }
  if (family == families_.end())
    family = families_.emplace(name, Family{escaped(help, false), type, {}}).first;
  family->second.series.emplace(std::move(labels), value);
  ++series_;
}

std::string PrometheusTextfile::text() const {
  std::string text;
  for (const auto& [name, family] : families_) {
    fmt::format_to(std::back_inserter(text), "# HELP farandole_{0} {1}\n# TYPE farandole_{0} {2}\n", name,
                   family.help, family.type == Type::counter ? "counter" : "gauge");
    for (const auto& [labels, value] : family.series)
      fmt::format_to(std::back_inserter(text), "farandole_{}{{{}}} {}\n", name, labels, number(value));
  }
  return text;
}

void PrometheusTextfile::publish() noexcept try {
  const auto now = now_ns();
  if (published_ns_ != 0 && now - published_ns_ < least_interval_ns) return;
  published_ns_ = now;
  if (!replace_file(file_, text()) && !std::exchange(warned_of_file_, true))
    log_warning(
        "cannot write {}, so Prometheus does not see this rank, and training continues; make the folder on "
        "this node, make it writable for you, or free space",
        file_.string());
} catch (const std::exception&) {
  // Without memory for a text of a few KiB, the training itself ends with an error.
}

}  // namespace farandole
