#include "farandole/estimator/fit.h"

#include <fmt/format.h>
#include <memory>
#include <optional>

#include "farandole/base/log.h"
#include "farandole/base/text/json.h"
#include "farandole/estimator/table_training.h"
#include "farandole/train/session_internals.h"
#include "farandole/trainer/trainer.h"

namespace farandole {
namespace {

// A checkpoint follows each epoch. Two are enough beside the best one.
LoopOptions loop_options(const SharedLoopOptions& shared, const std::filesystem::path& folder) {
  LoopOptions loop{shared};
  loop.run_dir = folder;
  loop.saves_each_epoch = true;
  loop.checkpoint_keep = 2;
  loop.shows_progress = false;
  return loop;
}

// Reads the newest checkpoint of the run, on rank 0.
std::optional<Snapshot> find_checkpoint(Session& session, const FitRecord& record,
                                        torch::nn::Module& module) {
  std::optional<Snapshot> snapshot;
  session.together([&] {
    if (session.rank() != 0) return;
    if (auto found = read_newest_checkpoint(record.folder / "checkpoints", memory_of(module)))
      snapshot = std::move(found->second);
  });
  return snapshot;
}

}  // namespace

ExitCode fit_on_rank(Session& session, const EstimatorOptions& options, const std::string& files,
                     const std::function<bool()>& stop, std::string& run) {
  std::shared_ptr<const DataTable> table;
  std::unique_ptr<ModelWithLosses> model;
  FitRecord record;
  std::string folder;
  std::optional<RunDirectory> directory;
  ClassNames classes;
  std::string shared_classes;
  const auto device = session.use_device(options.device);
  session.together([&] {
    auto columns = columns_of(options);
    if (!options.validation_column.empty()) columns.push_back(options.validation_column);
    table = open_table(files, columns);
    if (session.rank() != 0) return;
    table = number_classes(table, options.labels, classes);
    for (const auto& warning : table->warnings()) log_warning("{}", warning);
    shared_classes = exact_json_text(classes);
  });
  session.broadcast(shared_classes);
  session.together([&] {
    if (session.rank() != 0) {
      classes = parse_json(shared_classes).get<ClassNames>();
      table = number_classes(table, options.labels, classes);
    }
    model = std::make_unique<ModelWithLosses>(load_model(options.model, options.eval_model, session.device()),
                                              *table, options, session.device(), classes);
    check_fit(*model, *table, options, session.size());
  });
  session.together([&] {
    if (session.rank() != 0) return;
    record = open_fit(options, files);
    if (!record.history.empty() && record.classes != classes)
      throw UserError(
          fmt::format("the classes of the labels in {} are not those with which run {} was trained; use the "
                      "same table, or another --run",
                      files, record.id));
    record.classes = classes;
    directory.emplace(record.folder);
    session.internals().take_lease(record.folder);
    folder = record.folder.string();
    run = record.id;
  });
  session.broadcast(folder);
  session.broadcast(run);
  record.folder = folder;
  session.start_recording({.run_dir = record.folder});
  const auto loop = loop_options(options, record.folder);
  TableTraining training(session, options, *table, split_rows(*table, options), *model, record);
  Trainer trainer(session, loop, exact_json_text(record.options), training, training, stop);
  auto start = find_checkpoint(session, record, training.module());
  const auto resumed = share_position(session, start);
  if (resumed) trainer.resume(*resumed, start ? &*start : nullptr);
  start.reset();
  const bool prints = session.rank() == 0 && options.verbose > 0;
  if (prints) {
    fmt::print("{} {} on {} rank{}: {} rows, {} of them for validation\n", resumed ? "continuing" : "fitting",
               folder, session.size(), session.size() == 1 ? "" : "s", table->rows(),
               training.validation_rows());
    fmt::print("computes on {}\n", device);
    if (resumed) fmt::print("continuing from step {} of {}\n", trainer.steps_done(), trainer.total_steps());
    std::fflush(stdout);
  }
  if (directory) {
    auto facts = trainer.facts();
    facts.program = "farandole fit";
    trainer.started(*directory, std::move(facts));
  }
  const auto result = run_to_end(session, trainer, directory, prints);
  if (prints && result == ExitCode::done)
    fmt::print("the model is {}\n", published_model(record.folder).string());
  return result;
}

}  // namespace farandole
