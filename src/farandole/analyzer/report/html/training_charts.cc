#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>

#include "farandole/analyzer/report/formatting.h"
#include "farandole/analyzer/report/html/charts.h"
#include "farandole/analyzer/report/html/svg.h"

namespace farandole::html {
namespace {

constexpr double small_width = 470, small_height = 214, plot_top = 30, plot_bottom = 168;
constexpr std::size_t most_charts = 24;

// The curves of one chart: a value in training and the same in evaluation. One of them may be missing.
struct Pair {
  std::string name;
  const Curve *training = nullptr, *evaluation = nullptr;
};

std::vector<Pair> pairs_of(const TrainingLog& log) {
  std::vector<Pair> pairs;
  std::map<std::string, std::size_t> places;
  for (const auto& [key, curve] : log.curves) {
    if (curve.empty()) continue;
    const bool evaluation = key.starts_with("eval_");
    const auto name = evaluation ? key.substr(5) : key;
    const auto [place, is_new] = places.try_emplace(name, pairs.size());
    if (is_new) pairs.push_back({name});
    (evaluation ? pairs[place->second].evaluation : pairs[place->second].training) = &curve;
  }
  return pairs;
}

std::string step_tick(double step, double last) {
  return step > 0 && last >= 1e6 ? fmt::format("{:.4g} M", step * 1e-6) : fmt::format("{:.0f}", step);
}

// As few digits as tell neighbouring ticks apart.
std::vector<std::string> tick_texts(const std::vector<double>& values) {
  std::vector<std::string> texts;
  for (int digits = 6; digits <= 9; ++digits) {
    texts.clear();
    for (const double value : values) texts.push_back(fmt::format("{:.{}g}", value, digits));
    if (std::adjacent_find(texts.begin(), texts.end()) == texts.end()) break;
  }
  return texts;
}

class Chart {
 public:
  // All charts have the same axis of steps.
  Chart(const Pair& pair, const Axis& steps)
      : pair_(pair), svg_(small_width, small_height, pair.name + " over the steps"), x_(steps) {
    for (const auto* curve : {pair.training, pair.evaluation}) {
      if (curve == nullptr) continue;
      low_ = std::min(low_, curve->lowest().low);
      high_ = std::max(high_, curve->highest().high);
    }
    // A curve that falls by orders of magnitude shows nothing on a linear scale. Schedules of learning rates
    // are known by their shape on a linear one.
    y_.logarithmic = pair.name != "lr" && low_ > 0 && high_ / low_ > 50;
    const double space = high_ > low_ ? 0.04 * (high_ - low_) : std::max(1e-12, 0.1 * std::abs(high_));
    y_.low = y_.logarithmic ? low_ / 1.1 : low_ - space;
    y_.high = y_.logarithmic ? high_ * 1.1 : high_ + space;
  }

  std::string text(const TrainingLog& log, bool with_events) {
    scale();
    if (with_events) events(log);
    if (pair_.training != nullptr) draw(*pair_.training, "");
    if (pair_.evaluation != nullptr) draw(*pair_.evaluation, " of-eval");
    title();
    return svg_.finish();
  }

 private:
  std::vector<double> values_on_scale() const {
    if (!y_.logarithmic) return ticks(y_.low, y_.high, 4);
    const double decades_shown = std::log10(y_.high / y_.low);
    return decades_shown < 3 ? decades(y_.low, y_.high)
                             : powers(y_.low, y_.high, std::pow(10, std::ceil(decades_shown / 5)));
  }

  void scale() {
    const auto values = values_on_scale();
    const auto texts = tick_texts(values);
    std::size_t longest = 0;
    for (const auto& text : texts) longest = std::max(longest, text.size());
    x_.begin = 16 + 6.5 * static_cast<double>(longest);
    for (std::size_t i = 0; i < values.size(); ++i) {
      svg_.line(x_.begin, y_.at(values[i]), x_.end, y_.at(values[i]), "grid");
      svg_.text(x_.begin - 8, y_.at(values[i]) + 4, Anchor::end, texts[i], "small");
    }
    svg_.line(x_.begin, plot_bottom, x_.end, plot_bottom, "axis");
    for (const double step : ticks(x_.low, x_.high, 5))
      if (step == std::floor(step))
        svg_.text(x_.at(step), plot_bottom + 18, Anchor::middle, step_tick(step, x_.high), "small");
    svg_.text(x_.end, plot_bottom + 36, Anchor::end, "step", "small");
  }

  // Above the chart: its name, and the last value of each curve in the curve's colour.
  void title() {
    svg_.text(0, 16, Anchor::start, shortened(pair_.name, 30), "strong");
    double right = small_width - 10;
    const auto last = [&](const Curve* curve, const char* name, const std::string& colour) {
      if (curve == nullptr) return;
      const auto text = fmt::format("{}{}", name, number_text(curve->points().back().last));
      svg_.text(right, 16, Anchor::end, text, "small");
      right -= 14 + 5.8 * static_cast<double>(text.size());
      svg_.rect(right, 8, 8, 8, colour);
      right -= 14;
    };
    last(pair_.evaluation, "evaluation, last ", "f-wait");
    last(pair_.training, "last ", "f-backward");
  }

  void draw(const Curve& curve, const std::string& more) {
    std::string middle, band, back;
    bool joined = false;
    for (const auto& point : curve.points()) {
      const auto at = number(x_.at(0.5 * static_cast<double>(point.first_step + point.last_step)));
      const char* const verb = middle.empty() ? "M" : "L";
      middle += fmt::format("{}{} {}", verb, at, number(y_.at(point.mean())));
      band += fmt::format("{}{} {}", verb, at, number(y_.at(point.high)));
      back.insert(0, fmt::format("L{} {}", at, number(y_.at(point.low))));
      joined |= point.count > 1;
    }
    if (joined) svg_.path(band + back + "Z", "band" + more);
    svg_.path(middle, "curve" + more);
    if (curve.points().size() > 60) return;
    for (const auto& point : curve.points())
      svg_.circle(x_.at(static_cast<double>(point.last_step)), y_.at(point.last), 2.5,
                  more.empty() ? "f-backward" : "f-wait",
                  fmt::format("step {}: {}", point.last_step, number_text(point.last)));
  }

  void events(const TrainingLog& log) {
    for (const auto& event : log.events) {
      const double at = x_.at(static_cast<double>(event.step));
      if (event.to_step)
        svg_.line(at, plot_top, at, plot_bottom, "mark");
      else
        svg_.rect(at - 1, plot_bottom - 7, 2, 7, "f-wait", fmt::format("step {}: skipped", event.step));
    }
    std::string legend;
    if (log.skipped_steps > 0) legend = "ticks: skipped steps";
    if (log.rollbacks > 0) legend += std::string(legend.empty() ? "" : ", ") + "dashed: rollbacks";
    svg_.text(x_.begin, plot_bottom + 36, Anchor::start, legend, "small");
  }

  const Pair& pair_;
  Svg svg_;
  double low_ = INFINITY, high_ = -INFINITY;
  Axis x_, y_{0, 1, plot_bottom, plot_top};
};

}  // namespace

std::string training_charts(const TrainingLog& log) {
  auto pairs = pairs_of(log);
  Axis steps{INFINITY, -INFINITY, 0, small_width - 10};
  for (const auto& [key, curve] : log.curves) {
    if (curve.empty()) continue;
    steps.low = std::min(steps.low, static_cast<double>(curve.points().front().first_step));
    steps.high = std::max(steps.high, static_cast<double>(curve.points().back().last_step));
  }
  // The step time is the batch divided by it.
  if (log.find("samples_per_s") != nullptr)
    std::erase_if(pairs, [](const Pair& pair) { return pair.name == "step_ms"; });
  std::string text;
  for (std::size_t i = 0; i < std::min(pairs.size(), most_charts); ++i)
    text += Chart(pairs[i], steps).text(log, i == 0 && !log.events.empty());
  if (text.empty()) return "";
  text = "<div class=\"pairs\">" + text + "</div>";
  if (pairs.size() > most_charts)
    text += fmt::format("<p class=\"sub\">The JSON report has {} more.</p>", pairs.size() - most_charts);
  return text;
}

}  // namespace farandole::html
