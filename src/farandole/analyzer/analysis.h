// Where the time of one or several runs went: what `farandole analyze` prints, for programs.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace farandole {

// The texts are those of the options of `farandole analyze`.
struct AnalysisOptions {
  std::vector<std::filesystem::path> against;  // runs that the first run and its repeats are compared with
  std::string fail_on;                         // "throughput<-5%,overlap<0.5"
  // Gets a line for each run that is left out, because it is damaged or of another size than the others.
  std::function<void(const std::string&)> warn = {};
};

// A number of the report, or the reason why it cannot be known.
struct NamedFigure {
  std::string name;  // as fail_on names it: "throughput", "overlap", "backward_ms", …
  std::optional<double> value;
  std::string unknown;  // why there is no value
};

class Analysis {
 public:
  // Each run is a run directory, or a trace of Farandole, the profilers of PyTorch and XLA, Nsight
  // Systems or Horovod; the format is detected automatically. Runs of several sizes give a scaling table.
  // Memory is that of the largest run's events.
  // Throws: UserError if a run is not there, if `runs` is empty, or if an option's text is wrong;
  // CorruptInput if none of the runs can be analyzed.
  explicit Analysis(const std::vector<std::filesystem::path>& runs, const AnalysisOptions& options = {});
  ~Analysis();
  Analysis(Analysis&&) noexcept;
  Analysis& operator=(Analysis&&) noexcept;

  // For a terminal of 100 columns; `colour`: with ANSI attributes.
  std::string text(bool colour = false) const;
  // "farandole_report": 1; share/farandole/report.schema.json describes all keys. What cannot be known
  // is {"unknown": "why"}.
  // Units: fractions are 0 to 1, GB are 10^9 bytes, times are as the key's name says.
  std::string json() const;
  // One file that opens offline. `output` is where the file will lie, so that it can link to the traces;
  // empty: the current folder.
  std::string html(const std::filesystem::path& output = {}) const;

  // Of the first run and its repeats (the other runs of its size), their means.
  // Units: throughput in samples/s, names that end in "ms" in milliseconds, fractions 0 to 1.
  std::vector<NamedFigure> figures() const;
  // Which conditions of AnalysisOptions::fail_on hold, or cannot be known: one line each.
  const std::vector<std::string>& failures() const;

 private:
  struct Internals;
  std::unique_ptr<Internals> internals_;
};

}  // namespace farandole
