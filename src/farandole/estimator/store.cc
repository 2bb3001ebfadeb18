#include "farandole/estimator/store.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <map>

#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/run/run_lease.h"
#include "farandole/base/text/json.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

constexpr const char* fit_file = "fit.json";

Json to_json(const EpochResult& epoch) {
  Json result = {{"epoch", epoch.epoch}, {"step", epoch.step},       {"loss", epoch.loss},
                 {"lr", epoch.lr},       {"seconds", epoch.seconds}, {"metrics", epoch.metrics}};
  if (!epoch.training_metrics.empty()) result["training_metrics"] = epoch.training_metrics;
  if (epoch.validation_loss) result["validation_loss"] = *epoch.validation_loss;
  return result;
}

std::map<std::string, double> numbers_from(const Json& from) {
  std::map<std::string, double> numbers;
  for (const auto& [name, number] : from.items()) numbers[name] = number_from(number);
  return numbers;
}

EpochResult epoch_from(const Json& from) {
  EpochResult epoch{from.at("epoch"),
                    from.at("step"),
                    from.at("loss"),
                    from.at("lr"),
                    from.at("seconds"),
                    {},
                    numbers_from(from.at("metrics")),
                    numbers_from(from.value("training_metrics", Json::object()))};
  if (from.contains("validation_loss")) epoch.validation_loss = number_from(from["validation_loss"]);
  return epoch;
}

std::optional<FitRecord> read_fit(const fs::path& folder) {
  const auto text = read_whole_file(folder / fit_file);
  if (!text) return std::nullopt;
  try {
    const auto from = parse_json(*text);
    FitRecord record{folder.filename(),
                     folder,
                     from.at("table"),
                     from.at("options"),
                     from.value("classes", ClassNames()),
                     {},
                     from.at("finished"),
                     changed_ns(folder / fit_file)};
    for (const auto& epoch : from.at("history")) record.history.push_back(epoch_from(epoch));
    return record;
  } catch (const Json::exception& error) {
    throw CorruptInput(fmt::format("{} is damaged: {}", (folder / fit_file).string(), error.what()));
  }
}

// Another job may make the same folder at the same time; only one of them succeeds.
fs::path new_folder(const fs::path& store) {
  for (int number = 1;; ++number) {
    const auto folder = store / fmt::format("fit-{:04}", number);
    std::error_code error;
    if (fs::create_directory(folder, error)) return folder;
    if (error)
      throw UserError(fmt::format("the store {} cannot be written: {}", store.string(), error.message()));
  }
}

// Ignores the order of members, which earlier versions sorted by name.
bool equal_members(const Json& one, const Json& other) {
  using Members = std::map<std::string, Json>;
  return one.get<Members>() == other.get<Members>();
}

bool is_in_use(const fs::path& folder) {
  try {
    refuse_if_in_use(folder);
    return false;
  } catch (const UserError&) {
    return true;
  }
}

}  // namespace

double number_from(const Json& from) {
  return from.is_null() ? std::numeric_limits<double>::quiet_NaN() : from.get<double>();
}

std::optional<double> FitRecord::best_loss() const {
  if (history.empty()) return std::nullopt;
  return score_of(*std::ranges::min_element(history, {}, score_of));
}

bool FitRecord::out_of_patience(std::int64_t patience) const {
  const auto best = std::ranges::min_element(history, {}, score_of);
  // Epochs without a finite loss cannot be compared.
  return patience > 0 && best != history.end() && std::isfinite(score_of(*best)) &&
         history.end() - best > patience;
}

double score_of(const EpochResult& epoch) {
  const double loss = epoch.validation_loss.value_or(epoch.loss);
  return std::isnan(loss) ? std::numeric_limits<double>::infinity() : loss;
}

Json options_to_json(const EstimatorOptions& o) {
  Json json{{"model", o.model},
            {"losses", o.losses},
            {"loss_weights", o.loss_weights},
            {"features", o.features},
            {"labels", o.labels},
            {"input_shapes", o.input_shapes},
            {"sample_weight", o.sample_weight},
            {"optimizer", o.optimizer},
            {"lr", o.lr},
            {"scale_lr", o.scale_lr},
            {"momentum", o.momentum},
            {"weight_decay", o.weight_decay},
            {"schedule", o.schedule},
            {"warmup_steps", o.warmup_steps},
            {"lr_step_epochs", o.lr_step_epochs},
            {"lr_gamma", o.lr_gamma},
            {"epochs", o.epochs},
            {"batch", o.batch},
            {"validation_batch", o.validation_batch},
            {"accumulate", o.accumulate},
            {"train_steps", o.train_steps},
            {"validation_steps", o.validation_steps},
            {"validation", o.validation},
            {"validation_column", o.validation_column},
            {"shuffle", o.shuffle},
            {"nan", o.nan},
            {"seed", o.seed},
            {"metrics", o.metrics},
            {"patience", o.patience},
            {"keep_best", o.keep_best}};
  // Fits of earlier versions do not have these.
  if (!o.eval_model.empty()) json["eval_model"] = o.eval_model;
  if (o.device != "auto") json["device"] = o.device;
  if (o.precision != "float32") json["precision"] = o.precision;
  if (o.clip_norm != 0) json["clip_norm"] = o.clip_norm;
  if (o.drop_last) json["drop_last"] = true;
  if (o.on_nonfinite != "stop") json["on_nonfinite"] = o.on_nonfinite;
  return json;
}

ColumnOptions columns_from_json(const Json& from) {
  ColumnOptions options;
  options.losses = from.at("losses");
  options.loss_weights = from.at("loss_weights").get<std::vector<double>>();
  options.features = from.at("features");
  options.labels = from.at("labels");
  options.input_shapes = from.at("input_shapes");
  options.nan = from.at("nan");
  return options;
}

void write_fit(const FitRecord& record) {
  Json history = Json::array();
  for (const auto& epoch : record.history) history.push_back(to_json(epoch));
  Json fit = {{"table", record.table},
              {"options", record.options},
              {"finished", record.finished},
              {"history", history}};
  if (!record.classes.empty()) fit["classes"] = record.classes;
  write_file_atomically(record.folder / fit_file, exact_json_text(fit, 2) + "\n");
}

std::vector<FitRecord> list_fits(const fs::path& store) {
  std::vector<FitRecord> fits;
  std::error_code error;
  for (fs::directory_iterator entry(store, error), end; !error && entry != end; entry.increment(error))
    if (auto fit = read_fit(entry->path())) fits.push_back(*std::move(fit));
  std::sort(fits.begin(), fits.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  return fits;
}

FitRecord find_fit(const fs::path& store, const std::string& id) {
  std::vector<std::string> ids;
  for (auto& fit : list_fits(store)) {
    if (fit.id == id) return fit;
    ids.push_back(fit.id);
  }
  throw UserError(
      fmt::format("the store {} has no run {}; {}", store.string(), id,
                  ids.empty() ? "it is empty" : fmt::format("its runs are {}", fmt::join(ids, ", "))));
}

FitRecord open_fit(const EstimatorOptions& options, const std::string& table) {
  std::error_code error;
  fs::create_directories(options.store, error);
  if (error)
    throw UserError(
        fmt::format("the store {} cannot be created: {}", options.store.string(), error.message()));
  const auto wanted = options_to_json(options);
  std::optional<FitRecord> found;
  fs::path folder;
  if (!options.run.empty()) {
    folder = options.store / options.run;
    fs::create_directories(folder, error);
    found = read_fit(folder);
  } else {
    for (auto& fit : list_fits(options.store))
      if (!fit.finished && equal_members(fit.options, wanted) && fit.table == table && !is_in_use(fit.folder))
        found = std::move(fit);
    folder = found ? found->folder : new_folder(options.store);
  }
  FitRecord record{folder.filename(), folder, table, wanted, {}, {}, false, 0};
  if (found) record.history = std::move(found->history);
  if (found) record.classes = std::move(found->classes);
  return record;
}

std::filesystem::path run_of_rank_0(Session& session, const std::filesystem::path& run) {
  auto folder = run.string();
  session.broadcast(folder);
  return folder;
}

}  // namespace farandole
