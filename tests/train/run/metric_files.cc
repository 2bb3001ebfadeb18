// metric_files FOLDER: writes what tests/train/run/metric_files.py reads, and prints what it costs.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <limits>
#include <string>
#include <sys/resource.h>

#include "train/torch_program.h"

#include "farandole/base/clock.h"
#include "farandole/base/log.h"
#include "farandole/train/run/prometheus_textfile.h"
#include "farandole/train/run/tensorboard_writer.h"

namespace {

namespace fs = std::filesystem;
using farandole::PrometheusTextfile;
using farandole::TensorBoardWriter;

void write_starts(const fs::path& folder) {
  {
    TensorBoardWriter first(folder, 0);
    for (int step = 1; step <= 9; ++step) first.add(step, "loss", step);
    first.publish();
    first.go_back_to(7);
    first.add(8, "loss", 80);
    first.add(8, std::string(300, 'n'), 0.5);
  }
  // The clock of the next host is years behind this one's.
  for (const auto& entry : fs::directory_iterator(folder))
    fs::rename(entry, folder / "events.out.tfevents.9000000000.later.1");
  TensorBoardWriter second(folder, 5);
  for (int step = 6; step <= 7; ++step) second.add(step, "loss", 100 + step);
  second.add(7, "infinite", std::numeric_limits<double>::infinity());
  second.add(7, "not a number", std::numeric_limits<double>::quiet_NaN());
  second.add(std::int64_t{1} << 40, "late", -1.5);
}

// The limit on file sizes cuts a write off as a full disk does.
void write_on_a_full_disk(const fs::path& folder) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited{};
  ::getrlimit(RLIMIT_FSIZE, &unlimited);
  TensorBoardWriter events(folder, 0);
  for (int step = 1; step <= 30; ++step) {
    rlimit limit = unlimited;
    if (step > 10 && step < 25) limit.rlim_cur = 500;
    ::setrlimit(RLIMIT_FSIZE, &limit);
    events.add(step, "loss", step);
    events.publish();
  }
}

// A file is in the place of the folder.
void write_without_folder(const fs::path& file) {
  std::ofstream{file};
  TensorBoardWriter events(file, 0);
  PrometheusTextfile values(file, "job", 0);
  for (int step = 1; step <= 3; ++step) {
    events.add(step, "loss", 1);
    events.publish();
    values.set_metric("loss", 1);
    values.publish();
  }
}

void fill(PrometheusTextfile& file, double value) {
  using enum PrometheusTextfile::Type;
  file.set("steps_total", "Steps done.", counter, value);
  file.set("step_duration_seconds", "Mean time of a step.", gauge, 0.0125);
  file.set("memory_bytes", "Resident memory\nof \\ the process.", gauge, 1.5e9);
  file.set_metric("loss", value);
  file.set_metric("top-5 \"accuracy\"\\", std::numeric_limits<double>::quiet_NaN());
}

}  // namespace

int metric_files(int, char** argv) {
  farandole::set_up_log();
  const fs::path folder = argv[1];
  write_starts(folder / "tensorboard");

  write_on_a_full_disk(folder / "full-disk");
  write_without_folder(folder / "file");

  const auto text = folder / "farandole-a_b-3.prom";
  {
    PrometheusTextfile file(folder, "a/b", 3);
    fill(file, 1);
    file.publish();
    fs::copy_file(text, folder / "first");
    fill(file, 2);
    file.publish();  // too early
    fs::copy_file(text, folder / "second");
  }
  {
    PrometheusTextfile file(folder, "a/b", 3);
    for (int i = 0; i < 50; ++i) file.set_metric(std::to_string(i), i);
    file.publish();
    fs::copy_file(text, folder / "full");
  }

  TensorBoardWriter events(folder / "timed", 0);
  PrometheusTextfile values(folder, "timed", 0);
  fill(values, 0);
  values.publish();
  const auto us = [&](auto&& work) {  // The least of 20 means, because other processes use the cores, too.
    constexpr int calls = 50;
    double least = 1e9;
    for (int repetition = 0; repetition < 20; ++repetition) {
      const auto begin = farandole::now_ns();
      for (int call = 0; call < calls; ++call) work(repetition * calls + call);
      least = std::min(least, static_cast<double>(farandole::now_ns() - begin) * 1e-3 / calls);
    }
    return least;
  };
  fmt::print(
      "µs a call: 10 scalars for TensorBoard {:.1f}, 5 series for Prometheus {:.1f}, a textfile {:.1f}\n",
      us([&](int step) {
        for (int i = 0; i < 10; ++i) events.add(step, "loss", i);
        events.publish();
      }),
      us([&](int step) {
        fill(values, step);
        values.publish();
      }),
      us([&](int) {
        PrometheusTextfile file(folder, "timed", 1);
        fill(file, 1);
        file.publish();
      }));
  return 0;
}
