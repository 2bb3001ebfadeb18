#include "farandole/estimator/evaluate.h"

#include <memory>
#include <torch/utils.h>

#include "farandole/base/text/json.h"
#include "farandole/estimator/fit/store.h"
#include "farandole/estimator/model/scores.h"

namespace farandole {

Evaluation evaluate_on_rank(Session& session, const std::filesystem::path& own_run, const std::string& files,
                            const TransformOptions& options) {
  const auto run = run_of_rank_0(session, own_run);
  EstimatorOptions trained;
  std::shared_ptr<const DataTable> table;
  std::unique_ptr<Objective> objective;
  std::unique_ptr<Scores> scores;
  session.together([&] {
    trained = options_from_json(find_fit(run.parent_path(), run.filename()).options);
    table = open_table(files);
    objective = std::make_unique<Objective>(run / "model.pt", *table, trained);
    objective->model().train(false);
    scores = std::make_unique<Scores>(ScoreOptions{trained.labels, objective->classifies(), options.metrics,
                                                   options.metric_functions, /*all=*/true});
  });
  session.together([&] {
    const torch::NoGradGuard no_grad;
    const auto& tensors = objective->tensors();
    TableReader reader(*table, RowSelection(),
                       {.columns = tensors.columns(),
                        .batch = rows_per_pass(options.batch, tensors.row_bytes()),
                        .shuffle = false,
                        .rank = session.rank(),
                        .world_size = session.size()});
    reader.start(0);
    scores->add(*objective, reader);
  });
  return scores->reduce(session);
}

std::string evaluation_to_json(const Evaluation& evaluation) {
  Json json = {{"rows", evaluation.rows}, {"loss", evaluation.loss}};
  for (const auto& [name, value] : evaluation.metrics) json[name] = value;
  if (!evaluation.confusion.empty()) json["confusion"] = evaluation.confusion;
  return json_text(json);
}

Evaluation evaluation_from_json(const std::string& text) {
  const auto json = parse_json(text);
  Evaluation evaluation{json.at("rows"), number_from(json.at("loss")), {}, {}};
  for (const auto& [name, value] : json.items())
    if (name != "rows" && name != "loss" && !value.is_object()) evaluation.metrics[name] = number_from(value);
  if (json.contains("confusion")) evaluation.confusion = json["confusion"];
  return evaluation;
}

}  // namespace farandole
