#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/base/options.h"
#include "farandole/base/text/json.h"
#include "farandole/bench/benchmark_trainee.h"
#include "farandole/bench/commands.h"
#include "farandole/bench/measurement.h"
#include "farandole/checkpoint/checkpoint_file.h"
#include "farandole/checkpoint/checkpoint_store.h"
#include "farandole/checkpoint/hdf5_file.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

struct CheckpointBenchmarkOptions {
  std::string model = "gpt";
  std::string folder = ".";
  int repetitions = 15;
  int blocks = 6;        // of steps, each with and without a checkpoint
  int block_steps = 10;  // A checkpoint is saved at the begin of a block.
};

// A quantity and what it is compared with, measured in turns.
struct Pair {
  std::string name, beside;
  std::string key, beside_key;  // In JSON; in milliseconds if they end with _ms, else in seconds.
  Sample ours, other;
  // How many times as long ours takes.
  double ratio() const { return ours.median() / other.median(); }
};

template <class Work>
void time_into(Sample& sample, Work work) {
  const auto begin_ns = now_ns();
  work();
  sample.us.push_back(static_cast<double>(now_ns() - begin_ns) * 1e-3);
}

// What dd and cat do. As programs of their own they would be measured with their start, and the fork of this
// large process would make each page of it fault at the next write.
void copy_as_dd(const fs::path& from, const fs::path& to) {
  std::vector<std::byte> buffer(std::size_t{4} << 20);
  const RawData in(from.string(), O_RDONLY), out(to.string(), O_WRONLY | O_CREAT | O_TRUNC);
  const auto bytes = in.file_bytes();
  for (std::uint64_t offset = 0; offset < bytes; offset += buffer.size()) {
    const auto piece = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), bytes - offset));
    in.read(offset, piece);
    out.write(offset, piece);
  }
  out.sync();
}

void read_as_cat(const fs::path& file) {
  std::vector<std::byte> buffer(std::size_t{128} << 10);
  const RawData in(file.string(), O_RDONLY);
  const auto bytes = in.file_bytes();
  for (std::uint64_t offset = 0; offset < bytes; offset += buffer.size())
    in.read(offset, std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), bytes - offset)));
}

// What a program costs that needs the bytes in memory, without checks.
void read_into_memory(const fs::path& file) {
  const RawData in(file.string(), O_RDONLY);
  Bytes bytes(in.file_bytes());
  in.read(0, bytes);
}

// The same arrays, written and published as a checkpoint is, without checksums.
void write_unchecked(const fs::path& file, const Snapshot& snapshot) {
  AtomicFile written(file);
  auto hdf5 = Hdf5File::create(written.temporary());
  for (const auto& array : snapshot.arrays) {
    hdf5.write_array(array.path, array.dtype, array.shape, array.bytes);
    hdf5.set_attribute(array.path, "xxh3", "0123456789abcdef");
  }
  hdf5.close();
  written.publish();
}

std::size_t bytes_of(const Snapshot& snapshot) {
  std::size_t bytes = 0;
  for (const auto& array : snapshot.arrays) bytes += array.bytes.size();
  return bytes;
}

class CheckpointBenchmark {
 public:
  CheckpointBenchmark(Session& session, const CheckpointBenchmarkOptions& options)
      : session_(session),
        options_(options),
        trainee_(session, options.model, {}),
        leads_(session.rank() == 0) {
    constexpr int warmup = 3;
    trainee_.steps(warmup);
  }

  void run() {
    session_.together([&] {
      if (leads_) folder_.emplace(options_.folder);
    });
    measure_pause();
    session_.together([&] {
      if (leads_) measure_files();
    });
    measure_training();
  }

  std::size_t state_bytes() const { return bytes_of(snapshot_); }
  const std::vector<Pair>& results() const { return results_; }

 private:
  void measure_pause() {
    Pair pause{"training waits for the copy", "memcpy", "stall_ms", "memcpy_ms", {}, {}};
    std::vector<Bytes> copies;
    for (int i = 0; i <= options_.repetitions; ++i) {
      session_.barrier();
      SnapshotBuilder builder(std::move(snapshot_));
      Sample& ours = i == 0 ? unused_ : pause.ours;  // The first one allocates.
      time_into(ours, [&] {
        trainee_.capture(builder);
        snapshot_ = builder.finish();
      });
      if (!leads_) continue;
      snapshot_.config = "{}";
      copies.resize(snapshot_.arrays.size());
      for (std::size_t a = 0; a < copies.size(); ++a) copies[a].resize(snapshot_.arrays[a].bytes.size());
      time_into(i == 0 ? unused_ : pause.other, [&] {
        for (std::size_t a = 0; a < copies.size(); ++a)
          std::memcpy(copies[a].data(), snapshot_.arrays[a].bytes.data(), copies[a].size());
      });
    }
    results_.push_back(std::move(pause));
  }

  void measure_files() {
    Pair write{"write and synchronize", "dd conv=fsync", "write_s", "raw_write_s", {}, {}};
    Pair checksum{"write with checksum, NaN check", "without", "", "unchecked_write_s", {}, {}};
    Pair read{"restore with verification", "cat", "restore_s", "raw_read_s", {}, {}};
    Pair into_memory{"the same", "read(2) into new memory", "", "memory_read_s", {}, {}};
    const auto copy = *folder_ / "copy";
    for (int i = 0; i < options_.repetitions; ++i) {
      // A file that is replaced would take time to remove.
      const auto file = *folder_ / fmt::format("{}.h5", i);
      const auto unchecked = *folder_ / fmt::format("unchecked-{}.h5", i);
      const auto write_ours = [&] { time_into(write.ours, [&] { write_checkpoint(file, snapshot_); }); };
      if (i % 2 == 0) write_ours();
      time_into(checksum.other, [&] { write_unchecked(unchecked, snapshot_); });
      if (i % 2 != 0) write_ours();
      time_into(write.other, [&] { copy_as_dd(file, copy); });
      time_into(read.ours, [&] { trainee_.restore(file); });
      time_into(read.other, [&] { read_as_cat(file); });
      time_into(into_memory.other, [&] { read_into_memory(file); });
      for (const auto& made : {copy, file, unchecked}) fs::remove(made);
    }
    checksum.ours = write.ours;
    into_memory.ours = read.ours;
    for (auto* pair : {&write, &checksum, &read, &into_memory}) results_.push_back(std::move(*pair));
  }

  // The next block waits for the write of a checkpoint. With few steps, a block therefore ends
  // before this write.
  void measure_training() {
    Pair training{fmt::format("{} steps with a checkpoint", options_.block_steps),
                  "without",
                  "block_with_checkpoint_s",
                  "block_s",
                  {},
                  {}};
    Timeline none;
    std::optional<CheckpointStore> store;
    if (leads_) store.emplace(CheckpointOptions{.folder = *folder_ / "checkpoints", .keep_last = 1}, none);
    for (int i = 0; i < 2 * options_.blocks; ++i) {
      const bool saves = i % 2 == 0;
      session_.barrier();
      time_into(saves ? training.ours : training.other, [&] {
        if (saves) {
          auto builder = leads_ ? store->builder() : SnapshotBuilder();
          trainee_.capture(builder);
          auto snapshot = builder.finish();
          snapshot.config = "{}";
          if (leads_) store->save(std::move(snapshot));
        }
        trainee_.steps(options_.block_steps);
      });
      session_.together([&] {
        if (leads_) store->wait();
      });
    }
    results_.push_back(std::move(training));
  }

  Session& session_;
  const CheckpointBenchmarkOptions& options_;
  BenchmarkTrainee trainee_;
  const bool leads_;
  std::optional<TemporaryFolder> folder_;
  Snapshot snapshot_;
  Sample unused_;
  std::vector<Pair> results_;
};

}  // namespace

int checkpoint_command(int argc, const char* const* argv) {
  namespace po = boost::program_options;
  CheckpointBenchmarkOptions options;
  std::string format = "text";
  OptionParser parser;
  parser.usage =
      "Usage: farandole run -n 2 -- farandole bench checkpoint [OPTION]...\n\n"
      "Measures on rank 0 what a checkpoint costs, compared with memcpy, dd and cat on the same bytes. The\n"
      "measurements alternate. Prints medians and quartiles in milliseconds. tests/compare/checkpoint in the\n"
      "sources compares with torch.save and torch.distributed.checkpoint, for which it needs PyTorch for Python.\n";
  parser.visible.add_options()("model", po::value(&options.model)->default_value(options.model),
                               "mlp, gpt, mnist, small-mlp or small-gpt")(
      "folder", po::value(&options.folder)->default_value(options.folder),
      "where a temporary folder with the files is made")(
      "repetitions", po::value(&options.repetitions)->default_value(options.repetitions),
      "number of copies and files")("blocks", po::value(&options.blocks)->default_value(options.blocks),
                                    "blocks of steps of each kind; 0 leaves training out")(
      "block-steps", po::value(&options.block_steps)->default_value(options.block_steps), "steps of a block")(
      "format", po::value(&format)->default_value(format), "text or json");
  for (int i = 1; i < argc; ++i)
    if (const std::string_view word = argv[i]; word == "--help" || word == "-h")
      return parser.parse(argc - 1, argv + 1), 0;
  return run_session("farandole bench", argc, argv, [&](Session& session) {
    session.together([&] {
      parser.parse(argc - 1, argv + 1);
      BenchmarkTrainee::check(options.model);
      if (options.repetitions < 1) throw UserError("--repetitions must be at least 1");
      if (options.blocks < 0) throw UserError("--blocks cannot be negative");
      if (options.block_steps < 1) throw UserError("--block-steps must be at least 1");
      check_format(format);
    });
    CheckpointBenchmark benchmark(session, options);
    benchmark.run();
    if (session.rank() != 0) return 0;
    Json result = {
        {"model", options.model}, {"ranks", session.size()}, {"state_bytes", benchmark.state_bytes()}};
    const auto add = [&](const std::string& key, const Sample& sample) {
      if (!key.empty()) result[key] = sample.median() * (key.ends_with("_ms") ? 1e-3 : 1e-6);
    };
    if (format == "text") {
      fmt::print("{} on {} ranks, state of {:.1f} MB\n", options.model, session.size(),
                 static_cast<double>(benchmark.state_bytes()) * 1e-6);
      fmt::print("{:<30} {:<24} {:<24} {:<24} {:>6}\n", "", "ms (quartiles)", "beside it", "ms (quartiles)",
                 "ratio");
    }
    for (const auto& pair : benchmark.results()) {
      if (pair.ours.empty() || pair.other.empty()) continue;
      if (format == "text")
        fmt::print("{:<30} {:<24} {:<24} {:<24} {:>6.3f}\n", pair.name, milliseconds_with_spread(pair.ours),
                   pair.beside, milliseconds_with_spread(pair.other), pair.ratio());
      add(pair.key, pair.ours);
      add(pair.beside_key, pair.other);
    }
    if (format == "json") {
      const Json json = {{"bench", "checkpoint"}, {"machine", machine_facts()}, {"results", {result}}};
      fmt::print("{}\n", json_text(json, 1));
    }
    return 0;
  });
}

}  // namespace farandole
