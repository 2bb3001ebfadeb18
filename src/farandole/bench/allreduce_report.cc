#include "farandole/bench/allreduce_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "farandole/bench/machine_facts.h"

namespace farandole {
namespace {

std::string short_bytes(std::size_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && bytes % 1024 == 0 && unit < 3) bytes /= 1024, ++unit;
  return fmt::format("{} {}", bytes, units[unit]);
}

std::string time(double us) {
  return us < 10    ? fmt::format("{:.2f}", us)
         : us < 100 ? fmt::format("{:.1f}", us)
                    : fmt::format("{:.0f}", us);
}

std::string with_spread(const Sample& sample) {
  return fmt::format("{} ({}–{})", time(sample.median()), time(sample.quantile(0.25)),
                     time(sample.quantile(0.75)));
}

}  // namespace

std::string allreduce_header() {
  return fmt::format("{:>8} {:<8} {:<7}  {:<22} {:<22} {:>6} {:>7} {:>7} {:>6} {:>9}\n", "size", "dtype", "",
                     "ours µs (quartiles)", "MPI µs (quartiles)", "faster", "algbw", "busbw", "limit",
                     "unreg. µs");
}

std::string allreduce_line(const AllreduceResult& r) {
  return fmt::format("{:>8} {:<8} {:<7}  {:<21} {:<21} {:>5.2f}× {:>7.2f} {:>7.2f} {:>4.0f} % {:>9}\n",
                     short_bytes(r.bytes), name_of(r.dtype), name_of(r.buffers), with_spread(r.registered),
                     with_spread(r.mpi()), r.mpi().median() / r.registered.median(),
                     r.algbw_gbps(r.registered), r.busbw_gbps(r.registered),
                     100 * r.limit.median() / r.registered.median(), time(r.unregistered.median()));
}

std::string allreduce_json(std::span<const AllreduceResult> results, const std::string& mpi_version) {
  nlohmann::json json = {
      {"bench", "allreduce"}, {"machine", machine_facts()}, {"results", nlohmann::json::array()}};
  json["machine"]["mpi"] = mpi_version;
  for (const auto& r : results) {
    for (const bool registered : {true, false}) {
      const auto& ours = registered ? r.registered : r.unregistered;
      nlohmann::json line = {{"ranks", r.ranks},
                             {"bytes", r.bytes},
                             {"dtype", name_of(r.dtype)},
                             {"op", name_of(r.op)},
                             {"buffers", name_of(r.buffers)},
                             {"registered", registered},
                             {"ours_us", ours.median()},
                             {"ours_quartiles_us", {ours.quantile(0.25), ours.quantile(0.75)}},
                             {"mpi_us", r.mpi().median()},
                             {"mpi_quartiles_us", {r.mpi().quantile(0.25), r.mpi().quantile(0.75)}},
                             {"mpi_spin_us", r.mpi_spin.median()},
                             {"limit_us", r.limit.median()},
                             {"algbw_gbps", r.algbw_gbps(ours)},
                             {"busbw_gbps", r.busbw_gbps(ours)}};
      if (!r.mpi_yield.empty()) line["mpi_yield_us"] = r.mpi_yield.median();
      json["results"].push_back(std::move(line));
    }
  }
  return json.dump(1);
}

}  // namespace farandole
