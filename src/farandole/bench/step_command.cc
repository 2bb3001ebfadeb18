#include <fmt/format.h>
#include <torch/utils.h>

#include "farandole/base/error.h"
#include "farandole/base/options.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/phrases.h"
#include "farandole/bench/benchmark_trainee.h"
#include "farandole/bench/commands.h"
#include "farandole/bench/measurement.h"
#include "farandole/comm/job/transport.h"
#include "farandole/fusion/compression.h"

namespace farandole {
namespace {

constexpr double bytes_a_mib = 1024 * 1024;
constexpr int turn_steps = 5;

struct StepBenchmarkOptions {
  int steps = 20;  // Measured steps of each kind; short blocks of both kinds alternate.
  int warmup = 5;  // Steps before the measurement.
  DistributedOptimizerOptions optimizer{};
  std::string optimizer_name{};  // Empty: that of the model.
};

struct StepResult {
  std::string model;
  int ranks = 0;
  Sample step;                        // Of rank 0.
  Sample step_without_communication;  // The same processes at the same time, without communication.
  Sample forward_backward;            // Of those steps; empty on a GPU.
  std::size_t gradient_bytes = 0;     // Per rank.
  std::size_t packed_bytes = 0;       // Bytes per step that are copied into and out of buckets.
  Sharding sharding;                  // On the node of rank 0.
};

// Each step uses the same random data.
StepResult benchmark_step(Session& session, const std::string& model, const StepBenchmarkOptions& options) {
  torch::manual_seed(1);
  std::unique_ptr<Group> own;
  for (int r = 0; r < session.size(); ++r)
    if (auto group = session.new_group({r}); group != nullptr) own = std::move(group);
  auto by_itself = options.optimizer;
  by_itself.group = own.get();
  by_itself.shard = Shard::automatic;
  BenchmarkTrainee together(session, model, options.optimizer, {}, options.optimizer_name),
      alone(session, model, by_itself, {}, options.optimizer_name);
  StepResult result{model, session.size(), {}, {}, {}, together.gradient_bytes(), 0, together.sharding()};
  together.steps(options.warmup);
  alone.steps(options.warmup);
  for (int done = 0; done < options.steps; done += turn_steps) {
    const int count = std::min(turn_steps, options.steps - done);
    session.barrier();
    together.steps(count, &result.step);
    session.barrier();
    alone.steps(count, &result.step_without_communication, &result.forward_backward);
  }
  result.packed_bytes = together.packed_bytes_a_step();
  return result;
}

void print_header(const std::string& device) {
  fmt::print("computes on {}\n", device);
  fmt::print("{:<8} {:>5}  {:<22} {:<22} {:>7} {:>16} {:>13} {:>11}\n", "model", "ranks",
             "step ms (quartiles)", "without communication", "added", "forward+backward", "gradients MiB",
             "packed MiB");
}

void print(const StepResult& r) {
  fmt::print("{:<8} {:>5}  {:<22} {:<22} {:>5.1f} % {:>16} {:>13.1f} {:>11.1f}\n", r.model, r.ranks,
             milliseconds_with_spread(r.step), milliseconds_with_spread(r.step_without_communication),
             100 * (r.step.median() / r.step_without_communication.median() - 1),
             r.forward_backward.empty() ? "-" : fmt::format("{:.2f}", r.forward_backward.median() * 1e-3),
             static_cast<double>(r.gradient_bytes) / bytes_a_mib,
             static_cast<double>(r.packed_bytes) / bytes_a_mib);
  if (r.ranks > 1) fmt::print("  {}\n", describe(r.sharding));
  std::fflush(stdout);
}

std::vector<double> milliseconds(const Sample& sample) {
  std::vector<double> result;
  for (const double us : sample.us) result.push_back(us * 1e-3);
  return result;
}

Json to_json(const StepResult& r) {
  return {{"model", r.model},
          {"ranks", r.ranks},
          {"step_ms", r.step.median() * 1e-3},
          {"step_without_communication_ms", r.step_without_communication.median() * 1e-3},
          {"forward_backward_ms",
           r.forward_backward.empty() ? Json(nullptr) : Json(r.forward_backward.median() * 1e-3)},
          {"steps_ms", milliseconds(r.step)},
          {"steps_without_communication_ms", milliseconds(r.step_without_communication)},
          {"gradient_bytes", r.gradient_bytes},
          {"packed_bytes", r.packed_bytes},
          {"sharding", describe(r.sharding)}};
}

}  // namespace

int step_command(int argc, const char* const* argv) {
  namespace po = boost::program_options;
  StepBenchmarkOptions options;
  std::string models = "mlp,gpt,mnist", format = "text", compression = "none", shard = "auto", transport,
              device = "auto";
  int bucket_mb = 25;
  OptionParser parser;
  parser.usage =
      "Usage: farandole run -n 2 -- farandole bench step [OPTION]...\n\n"
      "Compares training steps on random data with and without communication; the measurements alternate.\n"
      "Of the steps without communication, it also tells the time to the end of backward.\n"
      "Prints medians of rank 0 and the bytes per step that are copied into and out of buckets.\n"
      "OMP_NUM_THREADS sets the number of LibTorch's threads.\n";
  parser.visible.add_options()("model", po::value(&models)->default_value(models),
                               "models, separated by commas: mlp, gpt, mnist, small-mlp, small-gpt")(
      "steps", po::value(&options.steps)->default_value(options.steps), "measured steps of each kind")(
      "warmup", po::value(&options.warmup)->default_value(options.warmup), "steps before the measurement")(
      "bucket-mb", po::value(&bucket_mb)->default_value(bucket_mb), "size of a gradient bucket in MiB")(
      "compression", po::value(&compression)->default_value(compression),
      "compression of gradients, as of farandole train")("shard", po::value(&shard)->default_value(shard),
                                                         "auto, on or off, as of farandole train")(
      "optimizer", po::value(&options.optimizer_name),
      "sgd, adam, adamw or rmsprop, instead of the model's own")(
      "transport", po::value(&transport),
      "how ranks exchange data: auto, hierarchical or mpi. The default is FARANDOLE_TRANSPORT, or else auto")(
      "device", po::value(&device)->default_value(device),
      "cpu, cuda (one GPU for each rank) or auto (GPUs if every rank can have one)")(
      "format", po::value(&format)->default_value(format), "text or json");
  for (int i = 1; i < argc; ++i)
    if (const std::string_view word = argv[i]; word == "--help" || word == "-h")
      return parser.parse(argc - 1, argv + 1), 0;
  return run_session("farandole bench", argc, argv, [&](Session& session) {
    std::vector<std::string> names;
    session.together([&] {
      parser.parse(argc - 1, argv + 1);
      names = split_at_commas(models);
      for (const auto& name : names) BenchmarkTrainee::check(name);
      if (bucket_mb < 1) throw UserError("--bucket-mb must be at least 1");
      options.optimizer.buckets.bytes = static_cast<std::size_t>(bucket_mb) << 20;
      options.optimizer.compression = parse_compression(compression);
      options.optimizer.shard = parse_shard(shard);
      if (!transport.empty()) parse_transport(transport);
      if (options.steps < 1) throw UserError("--steps must be at least 1");
      if (options.warmup < 1) throw UserError("--warmup must be at least 1");
      check_format(format);
      if (device == "cuda" && options.optimizer.compression.kind != Compression::Kind::none)
        throw UserError("--compression works on CPUs only; use --device cpu");
    });
    if (!transport.empty()) session.use_transport(transport);
    const bool only_cpu = device == "auto" && options.optimizer.compression.kind != Compression::Kind::none;
    auto chosen = session.use_device(only_cpu ? "cpu" : device);
    if (only_cpu) chosen += ": --compression works there only";
    const bool speaks = session.rank() == 0;
    Json json = {
        {"bench", "step"}, {"machine", machine_facts()}, {"device", chosen}, {"results", Json::array()}};
    if (speaks && format == "text") print_header(chosen);
    for (const auto& name : names) {
      const auto result = benchmark_step(session, name, options);
      if (speaks && format == "text") print(result);
      json["results"].push_back(to_json(result));
    }
    const auto between_nodes = session.between_nodes();
    if (between_nodes) json["between_nodes"] = *between_nodes;
    if (speaks && format == "text" && between_nodes) fmt::print("{}\n", *between_nodes);
    if (speaks && format == "json") fmt::print("{}\n", json_text(json, 1));
    return 0;
  });
}

}  // namespace farandole
