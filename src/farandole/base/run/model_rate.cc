#include "farandole/base/run/model_rate.h"

#include <fmt/format.h>
#include <set>

#include "farandole/base/text/phrases.h"

namespace farandole {
namespace {

constexpr double tera = 1e12;

// Ranks that share a GPU share its peak. Without GPUs, the peak is that of a rank.
double devices_of(const RunFacts& facts) {
  const std::set gpus(facts.gpus.begin(), facts.gpus.end());
  return static_cast<double>(gpus.empty() ? facts.ranks.value_or(1) : static_cast<std::int64_t>(gpus.size()));
}

// "395 TFLOP", "45.8 GFLOP"
std::string operations(double tera_operations) {
  const bool few = tera_operations < 0.1;
  const auto value = few ? tera_operations * 1e3 : tera_operations;
  return (value >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value)) +
         (few ? " GFLOP" : " TFLOP");
}

}  // namespace

std::string ModelRate::text() const {
  const auto rate = operations(tflops) + "/s";
  return mfu ? fmt::format("{}, MFU {:.1f} %", rate, 100 * *mfu) : rate;
}

std::optional<ModelRate> model_rate(const RunFacts& facts, double step_s) {
  if (!facts.model_flops || !(step_s > 0)) return std::nullopt;
  ModelRate rate{*facts.model_flops / tera / step_s, std::nullopt};
  if (facts.peak_tflops) rate.mfu = rate.tflops / (*facts.peak_tflops * devices_of(facts));
  return rate;
}

std::string describe_model_flops(const RunFacts& facts) {
  if (!facts.model_flops) return "";
  auto text = fmt::format("{} a step, {}", operations(*facts.model_flops / tera),
                          printable(facts.model_flops_from.value_or("from an unknown source")));
  if (facts.peak_tflops)
    text += fmt::format("; peak {:g} TFLOP/s per device ({})", *facts.peak_tflops,
                        printable(facts.peak_from.value_or("from an unknown source")));
  return text;
}

}  // namespace farandole
