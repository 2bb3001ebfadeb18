#include "farandole/estimator/commands.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <optional>
#include <string>

#include "farandole/base/error.h"
#include "farandole/base/options.h"
#include "farandole/base/process/program.h"
#include "farandole/base/run/run_files.h"
#include "farandole/base/run/run_json.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/estimator/apply.h"
#include "farandole/estimator/estimator.h"
#include "farandole/estimator/fit.h"
#include "farandole/estimator/launch.h"
#include "farandole/estimator/models/model_file.h"
#include "farandole/estimator/models/show_model.h"
#include "farandole/estimator/store.h"
#include "farandole/launch/launch_plan.h"
#include "farandole/launch/process/machine.h"
#include "farandole/launch/stop_request.h"
#include "farandole/trainer/loop_option_table.h"

namespace farandole {
namespace {

namespace po = boost::program_options;

// What fit, transform and evaluate have in common.
struct CommandOptions {
  std::string np = "1", table, store = "runs", run, run_dir;
  bool local = false;
  int ranks = 1;  // As LaunchOptions::np.

  void add_to(OptionParser& parser) {
    parser.synonyms = {{"np", "ranks"}};
    parser.replaced = {{"labels", "label"}};
    parser.visible.add_options()("ranks,n", po::value(&np)->default_value(np),
                                 "number of ranks, or all: all tasks of the Slurm job, or all cores")(
        "local", po::bool_switch(&local), "start all ranks on this machine, also inside a Slurm job")(
        "table", po::value(&table), "HDF5, CSV, NumPy or IDX file, or several of them joined by commas")(
        "store", po::value(&store)->default_value(store), "folder with a run directory for each fit")(
        "run", po::value(&run), "id of a run in the store")(
        "run-dir", po::value(&run_dir), "run directory of the fit, instead of --store and --run");
  }
  // Parses, and takes what several options say together. Returns false after --help.
  bool parse(OptionParser& parser, int argc, const char* const* argv) {
    po::variables_map given;
    if (!parser.parse(argc, argv, &given)) return false;
    // In the version before, 0 meant all, and -3 three ranks on this machine.
    const int number = np == "all" ? 0 : parse_ranks(np);
    ranks = local && number == 0 ? -usable_cores() : local ? -std::abs(number) : number;
    if (run_dir.empty()) return true;
    if (!given["store"].defaulted() || !run.empty())
      throw UserError("--run-dir is instead of --store and --run; give only one of them");
    auto folder = std::filesystem::path(run_dir).lexically_normal();
    if (!folder.has_filename()) folder = folder.parent_path();
    run = folder.filename();
    store = folder.has_parent_path() ? folder.parent_path().string() : ".";
    return true;
  }
};

std::vector<std::string> split_words(const std::string& text, char separator) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; !text.empty() && begin <= text.size();) {
    const auto end = std::min(text.find(separator, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

// The commas within brackets belong to a feature.
std::vector<std::string> split_features(const std::string& text) {
  std::vector<std::string> features;
  bool joins = false;
  for (const auto& word : split_words(text, ',')) {
    if (joins)
      features.back() += "," + word;
    else
      features.push_back(word);
    joins = features.back().starts_with('[') && features.back().find(']') == std::string::npos;
  }
  return features;
}

std::vector<std::vector<std::int64_t>> parse_shapes(const std::string& text) {
  std::vector<std::vector<std::int64_t>> shapes;
  for (const auto& shape : split_words(text, ';')) {
    shapes.emplace_back();
    for (const auto& word : split_words(shape, ',')) {
      const auto extent = parse_number<std::int64_t>(word);
      if (!extent || *extent < 1)
        throw UserError(
            fmt::format("--input-shapes {}: '{}' is not a size; write for example 1,28,28", text, word));
      shapes.back().push_back(*extent);
    }
  }
  return shapes;
}

std::vector<double> parse_weights(const std::string& text) {
  std::vector<double> weights;
  for (const auto& word : split_words(text, ',')) {
    const auto weight = parse_number<double>(word);
    if (!weight || !(*weight >= 0))
      throw UserError(
          fmt::format("--loss-weights {}: '{}' is not a weight; write for example 1,0.5", text, word));
    weights.push_back(*weight);
  }
  return weights;
}

// Runs `prepare`, which parses the options and returns false if there is nothing to do, and then `body`
// on the ranks.
int run_command(const std::string& name, int argc, const char* const* argv, const CommandOptions& common,
                const std::function<bool()>& prepare, const std::function<int(Session&)>& body) {
  try {
    if (!prepare()) return 0;
    if (common.table.empty()) throw UserError("no table given; name one with --table");
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return static_cast<int>(error.exit_code());
  }
  return launch(argc, argv, {.np = common.ranks},
                [&](Session& session, const std::vector<std::string>&) { return body(session); });
}

// What transform and evaluate have in common.
void add_forward_options(OptionParser& parser, TransformOptions& o) {
  parser.visible.add_options()(
      "device", with_default(o.device),
      "where to compute: cpu, cuda (one GPU for each rank) or auto (GPUs if every rank can have one)")(
      "batch-size", with_default(o.batch),
      "rows per rank and forward pass; 0: as many as 16 MiB hold, and 256 at most");
}

void print_evaluation(const Evaluation& evaluation, const std::string& format) {
  if (format == "json") return fmt::print("{}\n", evaluation_to_json(evaluation));
  fmt::print("{:<12} {}\n", "rows", evaluation.rows);
  if (evaluation.skipped > 0)
    fmt::print("{:<12} {} because of a NaN, most of them in column {}\n", "left out", evaluation.skipped,
               evaluation.skipped_column);
  fmt::print("{:<12} {:.6g}\n", "loss", evaluation.loss);
  for (const auto& [metric, value] : evaluation.metrics) fmt::print("{:<12} {:.6g}\n", metric, value);
  constexpr std::size_t most = 20;  // Classes that fit on a terminal.
  for (const auto& [label, rows] : evaluation.confusion) {
    if (rows.size() > most) continue;
    fmt::print("\nconfusion of {}: a row for each true class, a column for each predicted class\n", label);
    const auto names = evaluation.classes.find(label);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (const auto count : rows[i]) fmt::print("{:>7}", count);
      fmt::print("{}\n", names == evaluation.classes.end() ? "" : "  " + names->second.at(i));
    }
  }
}

std::string state_of(const FitRecord& fit) {
  if (fit.finished) return "finished";
  return read_run_facts(run_json_of(fit.folder)).ended ? "stopped" : "not finished";
}

std::string loss_text(const FitRecord& fit) {
  const auto best = fit.best_loss();
  return best ? fmt::format("{:.6g}", *best) : "-";
}

int list_runs(const std::vector<FitRecord>& fits) {
  fmt::print("{:<16} {:<13} {:>7} {:>12}  {}\n", "run", "state", "epochs", "best loss", "model");
  for (const auto& fit : fits)
    fmt::print("{:<16} {:<13} {:>7} {:>12}  {}\n", fit.id, state_of(fit), fit.history.size(), loss_text(fit),
               fit.options.value("model", ""));
  return 0;
}

int show_run(const FitRecord& fit) {
  fmt::print("run        {}\nfolder     {}\nstate      {}\ntable      {}\nbest loss  {}\noptions    {}\n\n",
             fit.id, fit.folder.string(), state_of(fit), fit.table, loss_text(fit), json_text(fit.options));
  for (const auto& epoch : fit.history) {
    fmt::print("epoch {}  step {}  loss {:.6g}", epoch.epoch, epoch.step, epoch.loss);
    if (epoch.validation_loss) fmt::print("  validation loss {:.6g}", *epoch.validation_loss);
    for (const auto& [name, value] : epoch.training_metrics) fmt::print("  training {} {:.6g}", name, value);
    for (const auto& [name, value] : epoch.metrics) fmt::print("  {} {:.6g}", name, value);
    fmt::print("\n");
  }
  return 0;
}

int best_run(const std::vector<FitRecord>& fits, const std::string& store) {
  const FitRecord* best = nullptr;
  for (const auto& fit : fits)
    if (fit.finished && fit.best_loss() && (best == nullptr || *fit.best_loss() < *best->best_loss()))
      best = &fit;
  if (best == nullptr) throw UserError(fmt::format("the store {} has no finished run", store));
  fmt::print("{}\n", best->id);
  return 0;
}

}  // namespace

std::optional<FitArguments> parse_fit(int argc, const char* const* argv) {
  FitArguments arguments;
  auto& o = arguments.options;
  CommandOptions common;
  OptionParser parser;
  parser.usage =
      "Usage: farandole fit --table TABLE --model FILE --features COLUMN,... --label COLUMN [OPTION...]\n\n"
      "Trains a model of torch.export or TorchScript on a table and keeps the result in a store. The same command continues a run that was\n"
      "killed or stopped.\n\n"
      "Examples:\n"
      "  $ farandole fit -n 3 --table train.h5 --features pixels --label digit --model net.pt2 --loss nll --epochs 5\n";
  common.add_to(parser);
  parser.replaced.emplace("checkpoint-steps", "checkpoint-every, for example 500steps");
  const auto parsed = [](auto& variable, auto parse) {
    return taken_by([&variable, parse](const std::string& text) { variable = parse(text); });
  };
  const auto words = [](const std::string& text) { return split_words(text, ','); };
  OptionGroups groups;
  // clang-format off
  groups.data.add_options()
      ("model", po::value(&o.model), "file of the model: .pt2 of torch.export, or TorchScript")
      ("eval-model", po::value(&o.eval_model), "torch.export's program for evaluation, if it is not in the file of --model")
      ("loss", parsed(o.losses, words)->default_value(o.losses.front()), "nll, cross_entropy, mse, l1, smooth_l1, huber, bce, bce_with_logits, or a file of torch.export or TorchScript; one, or one for each label")
      ("loss-weights", parsed(o.loss_weights, parse_weights), "weight of each label's loss, for example 1,0.5")
      ("features", parsed(o.features, split_features), "columns that are the inputs of the model; NAME:int64 stays whole numbers; \"[a,b,c]\" is one input, a vector of the numbers of these columns")
      ("label", parsed(o.labels, words), "column of the labels, of numbers or of texts, which are classes; for several columns, the model returns a tuple with a tensor for each")
      ("input-shapes", parsed(o.input_shapes, parse_shapes), "shape of one row of each feature, for example 1,28,28; separate them with semicolons")
      ("sample-weight", po::value(&o.sample_weight), "column with the weight of each row")
      ("nan", with_default(o.nan), "what a NaN in a feature, label or weight does: error, skip (leave out the row) or keep")
      ("validation", with_default(o.validation), "fraction of the rows that is used for validation only")
      ("validation-column", po::value(&o.validation_column), "column that is not 0 for the rows that are used for validation only")
      ("validation-batch-size", with_default(o.validation_batch), "rows per rank and batch in validation; 0: as --batch-size")
      ("validation-steps", with_default(o.validation_steps), "largest number of batches per rank of a validation; 0: all rows")
      ("metrics", parsed(o.metrics, words), "what is measured in each epoch on the training rows and the validation rows: accuracy, top_5, log_loss, precision, recall, f1, mae, rmse, r2, or NAME=FILE with a function of output and label");
  groups.training.add_options()
      ("optimizer", with_default(o.optimizer), "sgd, adam, adamw, rmsprop, adagrad or lbfgs")
      ("schedule", with_default(o.schedule), "constant, step, cosine, polynomial or one_cycle")
      ("lr-step-epochs", with_default(o.lr_step_epochs), "epochs between two changes of the step schedule")
      ("lr-gamma", with_default(o.lr_gamma), "factor of the step schedule");
  groups.output.add_options()
      ("best", po::bool_switch(&o.keep_best), "keep the model of the epoch with the lowest loss, not of the last one")
      ("checkpoint-every", with_default(o.checkpoint_every), "also save a checkpoint within epochs: 500steps, 10min, or auto (from what a checkpoint costs)")
      ("verbose", with_default(o.verbose), "0: print nothing");
  add_loop_options(groups, groups.output, o);
  groups.training.add_options()
      ("train-steps", with_default(o.train_steps), "largest number of steps of an epoch; 0: all rows")
      ("drop-last", po::bool_switch(&o.drop_last), "leave out the last rows of an epoch that do not fill a batch on every rank")
      ("shuffle", with_default(o.shuffle), "read the rows in another order in each epoch")
      ("patience", with_default(o.patience), "end after this many epochs without a lower loss; 0: never");
  parser.visible.add_options()("check", po::bool_switch(&arguments.only_checks), "only check these options, and train nothing");
  // clang-format on
  parser.visible.add(groups.data).add(groups.training).add(groups.devices).add(groups.output);
  if (!common.parse(parser, argc, argv)) return std::nullopt;
  o.num_proc = common.ranks;
  o.store = common.store;
  o.run = common.run;
  o.check();
  if (std::filesystem::is_regular_file(o.model)) refuse_other_models(o.model, "model");
  arguments.table = common.table;
  return arguments;
}

int fit_command(int argc, const char* const* argv) {
  FitArguments arguments;
  CommandOptions common;
  std::optional<StopRequest> stop;
  return run_command(
      "farandole fit", argc, argv, common,
      [&] {
        auto given = parse_fit(argc, argv);
        if (!given) return false;
        arguments = *std::move(given);
        common.table = arguments.table;
        common.ranks = arguments.options.num_proc;
        if (arguments.only_checks && !common.table.empty()) return false;
        if (is_rank()) stop.emplace();
        return true;
      },
      [&](Session& session) {
        std::string id;
        return static_cast<int>(fit_on_rank(
            session, arguments.options, arguments.table, [&] { return stop && stop->due(); }, id));
      });
}

int transform_command(int argc, const char* const* argv) {
  CommandOptions common;
  TransformOptions o;
  std::string output;
  OptionParser parser;
  parser.usage =
      "Usage: farandole transform --store STORE [--run ID] --table TABLE --output FILE [-n N] [--argmax]\n\n"
      "Applies a trained model to a table. The output, an .h5 or .csv file, has all columns of the table and a column\n"
      "LABEL__output. Without --run or --run-dir, the run that ended last is used.\n\n"
      "Examples:\n"
      "  $ farandole transform --store runs --table test.h5 --output out.h5\n";
  common.add_to(parser);
  parser.visible.add_options()("output,o", po::value(&output), "file to write: .h5, or .csv")(
      "argmax", po::bool_switch(&o.argmax),
      "also add LABEL__prediction, the class with the highest output, by its name if the labels are texts");
  add_forward_options(parser, o);
  std::optional<TrainedModel> model;
  return run_command(
      "farandole transform", argc, argv, common,
      [&] {
        if (!common.parse(parser, argc, argv)) return false;
        if (output.empty()) throw UserError("no output given; name a file with --output");
        format_of_transform(output);
        if (o.batch < 0) throw UserError("--batch-size cannot be negative");
        model.emplace(common.store, common.run);
        return true;
      },
      [&](Session& session) {
        const auto rows = transform_on_rank(session, model->folder(), common.table, output, o);
        if (session.rank() == 0) fmt::print("{}: {} rows\n", output, rows);
        return 0;
      });
}

int evaluate_command(int argc, const char* const* argv) {
  CommandOptions common;
  TransformOptions o;
  std::string format = "text", metrics;
  OptionParser parser;
  parser.usage =
      "Usage: farandole evaluate --store STORE [--run ID] --table TABLE [-n N] [--metrics NAME=FILE] [--format text|json]\n\n"
      "Measures a trained model on a table: accuracy, top-5 accuracy, log-loss, precision, recall, F1 and\n"
      "confusion matrix for classes; mean absolute error, root of the mean square error and R2 otherwise. Without --run,\n"
      "the run that ended last is used.\n\n"
      "Examples:\n"
      "  $ farandole evaluate --store runs --table test.h5 --format json\n";
  common.add_to(parser);
  parser.visible.add_options()("format", po::value(&format)->default_value(format), "text or json")(
      "metrics", po::value(&metrics),
      "more metrics: NAME=FILE with a function of output and label, of torch.export or in TorchScript");
  add_forward_options(parser, o);
  std::optional<TrainedModel> model;
  return run_command(
      "farandole evaluate", argc, argv, common,
      [&] {
        if (!common.parse(parser, argc, argv)) return false;
        check_format(format);
        o.metrics = split_words(metrics, ',');
        if (o.batch < 0) throw UserError("--batch-size cannot be negative");
        model.emplace(common.store, common.run);
        return true;
      },
      [&](Session& session) {
        const auto evaluation = evaluate_on_rank(session, model->folder(), common.table, o);
        if (session.rank() == 0) print_evaluation(evaluation, format);
        return 0;
      });
}

int runs_command(int argc, const char* const* argv) {
  std::string command, run, store = "runs";
  OptionParser parser;
  parser.usage =
      "Usage: farandole runs list|show|best [--store STORE] [RUN]\n\n"
      "Lists the runs of a store, shows one of them, or prints the id of the finished run with the lowest loss.\n\n"
      "Examples:\n"
      "  $ farandole runs list --store runs\n"
      "  $ farandole runs best --store runs\n";
  parser.visible.add_options()("store", po::value(&store)->default_value(store),
                               "folder with a run directory for each fit")(
      "command", po::value(&command), "list, show or best (first positional argument)")(
      "run", po::value(&run), "id of the run to show (second positional argument)");
  parser.positional.add("command", 1).add("run", 1);
  return run_main("farandole runs", [&] {
    if (!parser.parse(argc, argv)) return 0;
    if (!std::filesystem::is_directory(store)) throw UserError("there is no store " + store);
    if (command == "list") return list_runs(list_fits(store));
    if (command == "best") return best_run(list_fits(store), store);
    if (command == "show" && run.empty()) throw UserError("show needs the id of a run");
    if (command == "show") return show_run(find_fit(store, run));
    const auto nearest = nearest_name(command, {"list", "show", "best"});
    throw UserError(
        (command.empty() ? "no command given" : "unknown command '" + command + "'") +
        (nearest.empty() ? "; there are list, show and best" : "; did you mean " + nearest + "?"));
  });
}

int model_command(int argc, const char* const* argv) {
  std::string command, file, evaluation;
  OptionParser parser;
  parser.usage =
      "Usage: farandole model show FILE [EVALUATION-FILE]\n\n"
      "Shows the inputs, outputs, parameters and operators of a model of torch.export or TorchScript, and which of its\n"
      "operators are missing here.\n\n"
      "Examples:\n"
      "  $ farandole model show net.pt2\n";
  parser.visible.add_options()("command", po::value(&command), "show (first positional argument)")(
      "file", po::value(&file), "file of the model (second positional argument)")(
      "eval-model", po::value(&evaluation),
      "torch.export's program for evaluation, if it is in another file (third positional argument)");
  parser.positional.add("command", 1).add("file", 1).add("eval-model", 1);
  return run_main("farandole model", [&] {
    if (!parser.parse(argc, argv)) return 0;
    if (command != "show")
      throw UserError((command.empty() ? "no command given" : "unknown command '" + command + "'") +
                      "; there is show");
    if (file.empty()) throw UserError("show needs the file of a model");
    fmt::print("{}", show_model(file, evaluation));
    return 0;
  });
}

}  // namespace farandole
