#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>
#include <span>
#include <string>

#include "farandole/base/error.h"
#include "farandole/base/options.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/phrases.h"
#include "farandole/bench/allreduce_benchmark.h"
#include "farandole/bench/commands.h"
#include "farandole/bench/measurement.h"

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

// Lines of a table that is printed during the measurement.
std::string allreduce_header() {
  return fmt::format("{:<14} {:>8} {:<8} {:<7}  {:<22} {:<22} {:>6} {:>7} {:>7} {:>6} {:>9}\n", "collective",
                     "size", "dtype", "", "ours µs (quartiles)", "MPI µs (quartiles)", "faster", "algbw",
                     "busbw", "limit", "unreg. µs");
}

std::string allreduce_line(const AllreduceResult& r) {
  const auto limit =
      r.limit.empty() ? "-" : fmt::format("{:.0f} %", 100 * r.limit.median() / r.registered.median());
  return fmt::format("{:<14} {:>8} {:<8} {:<7}  {:<21} {:<21} {:>5.2f}× {:>7.2f} {:>7.2f} {:>6} {:>9}\n",
                     name_of(r.collective), short_bytes(r.bytes), name_of(r.dtype), name_of(r.buffers),
                     with_spread(r.registered), with_spread(r.mpi()),
                     r.mpi().median() / r.registered.median(), r.algbw_gbps(r.registered),
                     r.busbw_gbps(r.registered), limit, time(r.unregistered.median()));
}

// {"bench":"allreduce","machine":{…},"results":[…]}. Each size has two results, with
// "registered" true and false.
std::string allreduce_json(std::span<const AllreduceResult> results, const std::string& mpi_version,
                           const std::optional<std::string>& between_nodes) {
  Json json = {{"bench", "allreduce"}, {"machine", machine_facts()}, {"results", Json::array()}};
  json["machine"]["mpi"] = mpi_version;
  if (between_nodes) json["between_nodes"] = *between_nodes;
  for (const auto& r : results) {
    for (const bool registered : {true, false}) {
      const auto& ours = registered ? r.registered : r.unregistered;
      Json line = {{"collective", name_of(r.collective)},
                   {"ranks", r.ranks},
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
                   {"algbw_gbps", r.algbw_gbps(ours)},
                   {"busbw_gbps", r.busbw_gbps(ours)}};
      if (!r.limit.empty()) line["limit_us"] = r.limit.median();
      if (!r.mpi_yield.empty()) line["mpi_yield_us"] = r.mpi_yield.median();
      json["results"].push_back(std::move(line));
    }
  }
  return json_text(json, 1);
}

// Parses "64", "64K", "64M", "1G".
std::size_t parse_bytes(const std::string& text, const char* option) {
  std::size_t end = 0;
  unsigned long long value = 0;
  try {
    value = std::stoull(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  const std::string unit = text.substr(end);
  const int shift = unit.empty() ? 0 : unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : -1;
  if (end == 0 || shift < 0 || value == 0)
    throw UserError(fmt::format("--{} cannot be '{}'; give a number of bytes, or for example 64K, 16M, 1G",
                                option, text));
  return static_cast<std::size_t>(value) << shift;
}

// Parses names from `known`, separated by commas.
template <class T>
std::vector<T> parse_list(const std::string& text, const char* option, const std::vector<T>& known) {
  const auto names = split_at_commas(text);
  std::vector<std::string> choices;
  for (const T value : known) choices.emplace_back(name_of(value));
  std::vector<T> result;
  for (const auto& name : names) {
    const auto found = std::find(choices.begin(), choices.end(), name);
    if (found == choices.end())
      throw UserError(
          fmt::format("--{} cannot be '{}'; it is a list of {}", option, name, fmt::join(choices, ", ")));
    result.push_back(known[static_cast<std::size_t>(found - choices.begin())]);
  }
  return result;
}

ReduceOp parse_op(const std::string& name) {
  for (const auto op : {ReduceOp::sum, ReduceOp::average, ReduceOp::min, ReduceOp::max, ReduceOp::product})
    if (name_of(op) == name) return op;
  throw UserError("--op cannot be '" + name + "'; it is sum, average, min, max or product");
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string all(text, static_cast<std::size_t>(length));
  return all.substr(0, all.find(','));
}

}  // namespace

int allreduce_command(int argc, const char* const* argv) {
  namespace po = boost::program_options;
  AllreduceBenchmarkOptions options;
  std::string collectives = "allreduce", smallest = "8", largest = "1G", dtypes = "float32", op = "sum",
              buffers = "warm", transport, format = "text";
  OptionParser parser;
  parser.usage =
      "Usage: farandole run -n 2 -- farandole bench allreduce [OPTION]...\n\n"
      "Compares Farandole's collectives with those of MPI in one run; the measurements alternate. Prints the\n"
      "median time of a call in microseconds over ranks and repetitions, GB/s as defined by nccl-tests, and for\n"
      "allreduces the speed relative to a local kernel that moves the same number of bytes. If the ranks are on\n"
      "several nodes, prints how the nodes exchange data and why.\n";
  parser.visible.add_options()("collective", po::value(&collectives)->default_value(collectives),
                               "collectives, separated by commas: allreduce, all_gather, broadcast, "
                               "reduce_scatter, all_to_all")(
      "from", po::value(&smallest)->default_value(smallest), "smallest size")(
      "to", po::value(&largest)->default_value(largest), "largest size")(
      "factor", po::value(&options.factor)->default_value(options.factor), "ratio of successive sizes")(
      "dtype", po::value(&dtypes)->default_value(dtypes), "element types, separated by commas")(
      "op", po::value(&op)->default_value(op), "sum, average, min, max or product")(
      "buffers", po::value(&buffers)->default_value(buffers),
      "state of the caches, a list separated by commas. warm: each call uses the same buffer. written: each "
      "rank writes its buffer before each call, which is not timed. cold: the calls use different buffers "
      "that together exceed the caches")("repetitions",
                                         po::value(&options.repetitions)->default_value(options.repetitions),
                                         "measurements per size")(
      "transport", po::value(&transport),
      "how ranks exchange data: auto, hierarchical or mpi. The default is FARANDOLE_TRANSPORT, or else auto")(
      "format", po::value(&format)->default_value(format), "text or json");
  if (!parser.parse(argc - 1, argv + 1)) return 0;
  options.collectives =
      parse_list<Operation>(collectives, "collective",
                            {Operation::allreduce, Operation::all_gather, Operation::broadcast,
                             Operation::reduce_scatter, Operation::all_to_all});
  options.smallest_bytes = parse_bytes(smallest, "from");
  options.largest_bytes = parse_bytes(largest, "to");
  options.dtypes = parse_list<DType>(
      dtypes, "dtype",
      {DType::float16, DType::bfloat16, DType::float32, DType::float64, DType::int32, DType::int64});
  options.op = parse_op(op);
  if (options.factor < 2) throw UserError("--factor must be at least 2");
  if (options.repetitions < 1) throw UserError("--repetitions must be at least 1");
  options.buffers = parse_list<Buffers>(buffers, "buffers", {Buffers::warm, Buffers::written, Buffers::cold});
  check_format(format);

  if (!transport.empty()) parse_transport(transport);
  World job;
  if (!transport.empty()) job.use_transport(parse_transport(transport));
  if (job.layout().size < 2)
    throw UserError(
        "an allreduce needs at least two ranks; use farandole run -n 2 -- farandole bench allreduce");
  job.start_mpi();
  const bool speaks = job.layout().rank == 0;
  const bool text = format == "text";
  if (speaks && text) fmt::print("{}", allreduce_header());
  const auto results = benchmark_allreduce(job, options, [&](const AllreduceResult& result) {
    if (!speaks || !text) return;
    fmt::print("{}", allreduce_line(result));
    std::fflush(stdout);
  });
  const auto between_nodes = job.between_nodes();
  if (speaks && text && between_nodes) fmt::print("{}\n", *between_nodes);
  if (speaks && !text) fmt::print("{}\n", allreduce_json(results, mpi_version(), between_nodes));
  return 0;
}

}  // namespace farandole
